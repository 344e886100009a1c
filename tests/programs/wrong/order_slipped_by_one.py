"""Rank 2 logs one value more than the others, so all that follows is one op late on it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [2],
    "says": ["all_reduce #2", "float32[16] on ranks 0-1", "float32[1] on rank 2"],
}


def log(value):
    dist.all_reduce(np.full(1, value, np.float32))  # <- odd, previous


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log(0.5)
    if rank == 2:
        log(0.25)
    for _ in range(3):
        dist.all_reduce(np.ones(16, np.float32))  # <- others
    dist.destroy_process_group()


main()
