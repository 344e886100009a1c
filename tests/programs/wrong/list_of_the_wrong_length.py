"""Rank 1 passes a list of two places to all_gather in a job of three ranks: its own mistake, and
it leaves.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "RankLeft", 1: "UsageError", 2: "RankLeft"},
    "op": "all_gather",
    "odd": [1],
    "says": ["rank 1", "left", "all_gather #1"],
}


def main():
    dist.init_process_group("gloo")
    places = 2 if dist.get_rank() == 1 else 3
    blocks = [np.zeros(2) for _ in range(places)]
    dist.all_gather(blocks, np.ones(2))
    dist.destroy_process_group()


main()
