"""Rank 1 computes longer than the timeout allows."""

import time
from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "OpTimeout", 1: "CollectiveError", 2: "OpTimeout"},
    "op": "all_reduce",
    "missing": {0: [1], 2: [1]},
    "says": ["all_reduce #2"],
    "verdict": {"kind": "missing rank", "ranks": [1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    gradient = np.ones(4)
    for step in range(3):
        if dist.get_rank() == 1 and step == 1:
            time.sleep(8)  # a huge batch
        dist.all_reduce(gradient)  # <- all
    dist.destroy_process_group()


main()
