"""Rank 1 makes two groups of the same ranks in the other order. That alone is right; but each
group then has ranks that mean the other one.
"""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "OpTimeout",
    "op": "all_reduce",
    "missing": {0: [1], 1: [0, 2], 2: [1]},
    "says": ["all_reduce #1 on group 'A'"],
    "verdict": {"kind": "deadlock", "ranks": [1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    if dist.get_rank() == 1:
        second = dist.new_group(group_desc="B")
        first = dist.new_group(group_desc="A")
    else:
        first = dist.new_group(group_desc="A")
        second = dist.new_group(group_desc="B")
    dist.all_reduce(np.ones(2), group=first)  # <- all
    dist.all_reduce(np.ones(3), group=second)
    dist.destroy_process_group()


main()
