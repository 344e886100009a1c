"""Rank 1 makes the two groups in the other order: what is the first pair to the others is the
second to it.
"""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "new_group",
    "odd": [1],
    "says": ["new_group #1", "group 0-1 on ranks 0,2", "group 1-2 on rank 1"],
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    rank = dist.get_rank()
    if rank == 1:
        right = dist.new_group([1, 2])  # <- odd
        left = dist.new_group([0, 1])
    else:
        left = dist.new_group([0, 1])  # <- others
        right = dist.new_group([1, 2])
    if rank < 2:
        dist.all_reduce(np.ones(2), group=left)
    if rank > 0:
        dist.all_reduce(np.ones(3), group=right)
    dist.destroy_process_group()


main()
