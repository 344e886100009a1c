"""Rank 0 sends to rank 2, though rank 1 waits for the message; rank 2 is in the barrier already."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "OpTimeout",
    "missing": {0: [2], 1: [0], 2: [0, 1]},
    "verdict": {"kind": "deadlock", "ranks": [0]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    rank = dist.get_rank()
    message = np.ones(3)
    if rank == 0:
        dist.send(message, 2, tag=5)  # <- rank 0
    elif rank == 1:
        dist.recv(message, 0, tag=5)
    dist.barrier()  # <- rank 2
    dist.destroy_process_group()


main()
