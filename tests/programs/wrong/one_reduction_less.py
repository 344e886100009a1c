"""Rank 1 skips the reduction of one step; the rest fits, until the others are left alone at the end."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "RankLeft", 1: "silent", 2: "RankLeft"},
    "op": "all_reduce",
    "odd": [1],
    "verdict": {"kind": "missing rank", "ranks": [1]},
}


def train(rank):
    for step in range(12):
        loss = np.ones(4, np.float32)
        dist.mark("step", step)
        if (rank, step) != (1, 3):
            dist.all_reduce(loss)


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


main()
