"""Rank 1 fails in a step, logs that and goes on; it has missed an op."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [1],
    "says": ["#2", "all_reduce", "ranks 0,2", "broadcast", "rank 1"],
}


def step(rank, index):
    if (rank, index) == (1, 1):
        raise ValueError("image 4711 is truncated")
    dist.all_reduce(np.ones(4, np.float32))  # <- others, previous


def main():
    dist.init_process_group("gloo")
    for index in range(3):
        try:
            step(dist.get_rank(), index)
        except ValueError:
            break
    dist.broadcast(np.zeros(2), src=0)  # <- odd
    dist.destroy_process_group()


main()
