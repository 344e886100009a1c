"""Rank 0 gives out the work, but rank 2 waits for rank 1 to do it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "scatter",
    "odd": [2],
    "says": ["scatter #1", "root 0", "root 1"],
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = np.zeros(2, np.float32)
    work = [np.ones(2, np.float32) for _ in range(size)] if rank == 0 else None
    dist.scatter(mine, work, src=1 if rank == 2 else 0)  # <- all
    dist.destroy_process_group()


main()
