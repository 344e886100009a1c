"""The root has no list to scatter: its own mistake, and the others are told that it left."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "UsageError", 1: "RankLeft", 2: "RankLeft"},
    "op": "scatter",
    "odd": [0],
    "says": ["rank 0", "left", "scatter #1"],
}


def main():
    dist.init_process_group("gloo")
    mine = np.zeros(2)
    dist.scatter(mine, None, src=0)
    dist.destroy_process_group()


main()
