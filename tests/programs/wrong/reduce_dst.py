"""Rank 1 reduces to itself, the others to rank 0."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "reduce",
    "odd": [1],
    "says": ["reduce #1", "root 0", "root 1"],
}


def main():
    dist.init_process_group("gloo")
    metrics = np.ones(3, np.float32)
    if dist.get_rank() == 1:
        dist.reduce(metrics, dst=1)  # <- odd
    else:
        dist.reduce(metrics, dst=0)  # <- others
    dist.destroy_process_group()


main()
