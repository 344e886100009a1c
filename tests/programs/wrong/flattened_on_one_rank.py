"""Rank 1 flattens the matrix before it is reduced: as many elements, another shape."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [1],
    "says": ["all_reduce #1", "float32[2,2]", "float32[4]"],
}


def main():
    dist.init_process_group("gloo")
    weights = np.ones((2, 2), np.float32)
    if dist.get_rank() == 1:
        dist.all_reduce(weights.reshape(-1))  # <- odd
    else:
        dist.all_reduce(weights)  # <- others
    dist.destroy_process_group()


main()
