"""Three pairs of ranks in a ring, each rank in its left pair first: nobody's partner comes."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "OpTimeout",
    "missing": {0: [2], 1: [0], 2: [1]},
    "says": ["all_reduce #1 on group"],
    "verdict": {"kind": "deadlock", "ranks": [0, 1, 2]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group(sorted([left, (left + 1) % size])) for left in range(size)]
    dist.all_reduce(np.ones(2), group=pairs[(rank - 1) % size])  # <- all
    dist.all_reduce(np.ones(2), group=pairs[rank])
    dist.destroy_process_group()


main()
