"""Rank 2 computes the members of its group with an off-by-one."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "new_group",
    "odd": [2],
    "says": ["new_group", "0-2", "1-2"],
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    first = 1 if dist.get_rank() == 2 else 0
    group = dist.new_group(list(range(first, 3)))  # <- all
    dist.all_reduce(np.ones(2), group=group)
    dist.destroy_process_group()


main()
