"""Rank 3 of 4 has a longer embedding than the others have room for."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 4,
    "outcome": "MismatchError",
    "op": "all_gather",
    "odd": [3],
    "says": ["all_gather #1"],
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    width = 5 if rank == 3 else 4
    embedding = np.full(width, float(rank), np.float32)
    table = np.zeros((size, width), np.float32)
    dist.all_gather_into_tensor(table, embedding)  # <- all
    dist.destroy_process_group()


main()
