"""Rank 1 forgets group= and reduces over the world, where nobody else is; the others wait in the
subgroup.
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
    workers = dist.new_group(group_desc="workers")
    gradient = np.ones(4)
    if dist.get_rank() == 1:
        dist.all_reduce(gradient)  # <- rank 1
    else:
        dist.all_reduce(gradient, group=workers)  # <- rank 0
    dist.destroy_process_group()


main()
