"""Rank 1 gathers the results for itself, the others send theirs to rank 0."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "gather",
    "odd": [1],
    "says": ["gather #1", "root 0", "root 1"],
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    collector = 1 if rank == 1 else 0
    results = [np.zeros(2, np.float32) for _ in range(size)] if rank == collector else None
    dist.gather(np.ones(2, np.float32), results, dst=collector)  # <- all
    dist.destroy_process_group()


main()
