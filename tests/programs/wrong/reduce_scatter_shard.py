"""Rank 1 pads the gradient to a multiple of 4, the others to a multiple of 3."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "reduce_scatter",
    "odd": [1],
    "says": ["reduce_scatter #1"],
}


def pad(length, multiple):
    return (length + multiple - 1) // multiple * multiple


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    length = pad(10, multiple=4 if rank == 1 else 3) // size * size
    length += 3 if rank == 1 else 0
    gradient = np.ones(length, np.float32)
    shard = np.zeros(length // size, np.float32)
    dist.reduce_scatter_tensor(shard, gradient)  # <- all
    dist.destroy_process_group()


main()
