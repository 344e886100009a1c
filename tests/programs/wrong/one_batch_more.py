"""Rank 0's share of the data has one batch more: it reduces a gradient, the others already
validate.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [0],
    "says": ["all_reduce #4", "float32[8] on rank 0", "float64[2] on ranks 1-2"],
}


def train(batches):
    for _ in range(batches):
        dist.all_reduce(np.ones(8, np.float32))  # <- odd, previous


def validate():
    dist.all_reduce(np.zeros(2))  # <- others


def main():
    dist.init_process_group("gloo")
    train(batches=4 if dist.get_rank() == 0 else 3)
    validate()
    dist.destroy_process_group()


main()
