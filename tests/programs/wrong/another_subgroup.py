"""Rank 0 uses group A and then B, rank 1 first B: a deadlock over two groups, each right in
itself.
"""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "OpTimeout",
    "missing": {0: [1], 1: [0]},
    "says": ["all_reduce #1 on group"],
    "verdict": {"kind": "deadlock", "ranks": [0, 1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    first, second = dist.new_group(group_desc="A"), dist.new_group(group_desc="B")
    order = [first, second] if dist.get_rank() == 0 else [second, first]
    for group in order:
        dist.all_reduce(np.ones(4), group=group)  # <- all
    dist.destroy_process_group()


main()
