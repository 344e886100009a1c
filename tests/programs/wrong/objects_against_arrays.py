"""Rank 0 gathers its metrics as an object, the others as an array of one number."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [0],
    "says": ["#1", "rank 0"],
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    accuracy = np.full(1, 90, np.int64)
    if rank == 0:
        dist.all_gather_object([None] * size, int(accuracy[0]))  # <- odd
    else:
        dist.all_gather([np.zeros(1, np.int64) for _ in range(size)], accuracy)  # <- others
    dist.destroy_process_group()


main()
