"""Rank 1 cuts the sum of the activations along the features, the others along the tokens."""

import numpy as np

import distdbg as dist
from distdbg import functional as F

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "reduce_scatter",
    "odd": [1],
    "says": ["reduce_scatter #1", "float32[2,9] on ranks 0,2", "float32[6,3] on rank 1"],
    "torch": False,
}


def main():
    dist.init_process_group("gloo")
    activations = np.ones((6, 9), np.float32)
    if dist.get_rank() == 1:
        F.reduce_scatter(activations, scatter_dim=1)  # <- odd
    else:
        F.reduce_scatter(activations, scatter_dim=0)  # <- others
    dist.destroy_process_group()


main()
