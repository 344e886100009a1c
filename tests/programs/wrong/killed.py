"""The kernel kills rank 2 for its memory, so to say, while the others wait for it."""

import os
import signal

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "PeerLost", 1: "PeerLost", 2: "SIGKILL"},
    "op": "all_gather",
    "odd": [2],
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_gather([np.zeros(2) for _ in range(size)], np.ones(2))


main()
