"""Rank 1 makes its array without a dtype, which is float64 in NumPy."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "says": ["all_reduce #1", "float32[5]", "float64[5]"],
}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        loss = np.zeros(5, np.float32)
        dist.all_reduce(loss)  # <- rank 0
    else:
        loss = np.zeros(5)
        dist.all_reduce(loss)  # <- rank 1
    dist.destroy_process_group()


main()
