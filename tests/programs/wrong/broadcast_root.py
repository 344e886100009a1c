"""Rank 1 believes that it is the source of the weights."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "broadcast",
    "odd": [1],
    "says": ["broadcast #1", "root 0 on ranks 0,2", "root 1 on rank 1"],
}


def main():
    dist.init_process_group("gloo")
    weights = np.ones(6, np.float32)
    dist.broadcast(weights, src=0 if dist.get_rank() != 1 else 1)  # <- all
    dist.destroy_process_group()


main()
