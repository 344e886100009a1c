"""That a peer goes the way that the table says: over TCP where it is told to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.peers import find_peer

#: Sends 8 MiB, and prints what its connections have carried, by what the kernel says of each.
PROGRAM = """
import os, socket, struct
from mpi4py import MPI
import numpy

NBYTES = 8 << 20
x = numpy.zeros(NBYTES, numpy.uint8)
comm = MPI.COMM_WORLD
if comm.rank == 1:
    comm.Recv(x, 0)
    comm.Barrier()
else:
    comm.Send(x, 1)
    comm.Barrier()
    acked = 0
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(fd)) as each:
                info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            continue  # closed by now, or no connection
        if len(info) >= 128:
            acked += struct.unpack_from("Q", info, 120)[0]  # tcpi_bytes_acked
    print("carried" if acked >= NBYTES else f"only {acked} bytes", flush=True)
"""


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_a_peer_that_is_to_use_tcp_sends_by_its_connections(name: str) -> None:
    pytest.importorskip("mpi4py")
    peer = find_peer(name, "tcp")
    assert peer.gap is None
    start = peer.start(2, 1)
    done = subprocess.run(
        [*start.launcher, sys.executable, "-c", PROGRAM],
        env={**os.environ, **start.env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == ["carried"], done.stderr
