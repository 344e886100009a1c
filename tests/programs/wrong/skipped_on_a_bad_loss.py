"""Rank 1 skips the reduction of a step with a bad loss, and from then on is one op ahead."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [1],
    "says": ["#5", "all_reduce", "ranks 0,2", "broadcast", "rank 1"],
}


def train(rank):
    for step in range(3):
        loss = 1e9 if (rank, step) == (1, 2) else 1.0
        gradient = np.full(4, loss, np.float32)
        if loss < 1e6:
            dist.all_reduce(gradient)  # <- others
        dist.broadcast(gradient, src=0)  # <- odd, previous


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


main()
