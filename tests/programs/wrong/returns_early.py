"""Rank 1 finds nothing to do and returns from main; the others wait for it in a reduction."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "RankLeft", 1: "silent", 2: "RankLeft"},
    "op": "all_reduce",
    "odd": [1],
    "says": ["rank 1", "left", "all_reduce #2"],
}


def main():
    dist.init_process_group("gloo")
    for step in range(4):
        if dist.get_rank() == 1 and step == 1:
            return
        dist.all_reduce(np.ones(4, np.float32))


main()
