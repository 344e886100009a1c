"""Rank 1 reduces on group b at the line where rank 0 waits for it on group a."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "OpTimeout",
    "missing": {0: [1], 1: [2], 2: [0, 1]},
    "verdict": {"kind": "deadlock", "ranks": [1, 2]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1], group_desc="a"), dist.new_group([1, 2], group_desc="b")]
    if rank < 2:
        dist.all_reduce(np.ones(4), group=groups[rank])  # <- rank 1
    dist.barrier()  # <- rank 2
    dist.destroy_process_group()


main()
