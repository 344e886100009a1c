"""The process of one rank under mpiexec: `python mpi_worker.py SOCKET`; see worker.py."""

from __future__ import annotations

import json
import socket
import sys
import warnings
from datetime import timedelta

import distdbg as dist
from differential.interpret import Interpreter

OP_TIMEOUT = timedelta(seconds=20)


def main(address: str) -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("mpi", timeout=OP_TIMEOUT)
    interpreter = Interpreter(dist, lambda array: array)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(bytes([dist.get_rank()]))
        with connection.makefile("r") as lines:
            for line in lines:
                results = json.dumps(interpreter.run(json.loads(line)))
                connection.sendall(results.encode() + b"\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
