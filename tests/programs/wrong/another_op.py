"""Rank 1 broadcasts where the others reduce."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [1],
    "says": ["#1", "all_reduce", "broadcast", "ranks 0,2", "rank 1"],
}


def synchronize(weights):
    if dist.get_rank() == 1:
        dist.broadcast(weights, src=0)  # <- odd
    else:
        dist.all_reduce(weights)  # <- others


def main():
    dist.init_process_group("gloo")
    synchronize(np.ones(4, np.float32))
    dist.destroy_process_group()


main()
