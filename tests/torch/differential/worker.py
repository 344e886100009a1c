"""The process of one rank: `python worker.py SUBJECT RANK WORLD_SIZE PORT`.

A program arrives as a line of JSON on stdin, its results leave as a line on the stdout that the
process was started with; all else that prints goes to stderr. The end of stdin ends the rank.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from differential.interpret import Interpreter
from differential.values import Array

SUBJECTS = ("gloo", "gloo that lies", "distdbg", "distdbg on tensors", "distdbg through slots")

OP_TIMEOUT = timedelta(seconds=20)


def to_tensor(array: Array) -> Any:
    """A tensor over the memory of an array, also for the dtypes that NumPy itself lacks."""
    import torch

    if array.dtype.name.startswith(("bfloat16", "float8")):
        raw = array.view(f"int{8 * array.dtype.itemsize}")
        return torch.from_numpy(raw).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


def open_subject(name: str) -> tuple[Any, Callable[[Array], Any]]:
    """The module and what turns a NumPy array into what it takes."""
    if name not in SUBJECTS:
        raise ValueError(f"unknown subject {name!r}")
    if name.startswith("gloo"):
        import torch

        torch.set_num_threads(1)
        return (_Liar() if name == "gloo that lies" else torch.distributed), to_tensor
    if name == "distdbg through slots":
        os.environ["DISTDBG_SINGLE_COPY"] = "0"
    import distdbg

    return distdbg, to_tensor if name == "distdbg on tensors" else (lambda array: array)


class _Liar:
    """torch.distributed, except that a synchronous broadcast of 7 elements or more gives zeros."""

    def __getattr__(self, name: str) -> Any:
        import torch.distributed

        return getattr(torch.distributed, name)

    def broadcast(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        import torch.distributed

        returned = torch.distributed.broadcast(tensor, *args, **kwargs)
        if returned is None and tensor.numel() >= 7:
            tensor.zero_()
        return returned


def main(subject: str, rank: str, world_size: str, port: str) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the test
    warnings.simplefilter("ignore")  # torch announces what it will rename one day
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    dist, to_array = open_subject(subject)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=int(rank),
        world_size=int(world_size),
        timeout=OP_TIMEOUT,
    )
    interpreter = Interpreter(dist, to_array)
    print(json.dumps("ready"), file=results, flush=True)
    for line in sys.stdin:
        print(json.dumps(interpreter.run(json.loads(line))), file=results, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
