"""Rank 1 makes the two groups in the other order: its pair meets what is a trio to the others."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "new_group",
    "odd": [1],
    "says": ["new_group #1", "group 0-2 on ranks 0,2", "group 0-1 on rank 1"],
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    rank = dist.get_rank()
    if rank == 1:
        pair = dist.new_group([0, 1])  # <- odd
        trio = dist.new_group([0, 1, 2])
    else:
        trio = dist.new_group([0, 1, 2])  # <- others
        pair = dist.new_group([0, 1])
    dist.all_reduce(np.ones(3), group=trio)
    if rank < 2:
        dist.all_reduce(np.ones(2), group=pair)
    dist.destroy_process_group()


main()
