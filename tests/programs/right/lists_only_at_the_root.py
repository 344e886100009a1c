"""Only the root has a list in scatter and gather; the others pass None."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    work = [np.full(2, float(peer), np.float32) for peer in range(size)] if rank == 1 else None
    mine = np.zeros(2, np.float32)
    dist.scatter(mine, work, src=1)
    assert mine.tolist() == [float(rank)] * 2
    mine *= 2
    results = [np.zeros(2, np.float32) for _ in range(size)] if rank == 2 else None
    dist.gather(mine, results, dst=2)
    assert rank != 2 or [float(block[0]) for block in results] == [0.0, 2.0, 4.0]
    dist.destroy_process_group()


main()
