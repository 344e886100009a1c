"""Rank 1 makes the two groups in the other order: what is A to the others is B to it."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [1],
    "names": [1],
    "says": ["new_group", "'A'", "'B'"],
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    if dist.get_rank() == 1:
        second = dist.new_group(group_desc="B")  # <- odd
        first = dist.new_group(group_desc="A")
    else:
        first = dist.new_group(group_desc="A")  # <- others
        second = dist.new_group(group_desc="B")
    dist.all_reduce(np.ones(2), group=first)
    dist.all_reduce(np.ones(3), group=second)
    dist.destroy_process_group()


main()
