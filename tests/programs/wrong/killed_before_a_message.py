"""Rank 0 is killed before it sends what rank 1 waits for."""

import os
import signal

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": {0: "SIGKILL", 1: "PeerLost"},
    "op": "recv",
    "odd": [0],
}


def main():
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.recv(np.zeros(3), 0)


main()
