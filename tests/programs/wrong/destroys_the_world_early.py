"""Rank 1 destroys its groups after training; the others still want to gather results from it."""

import time

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "RankLeft", 1: "silent", 2: "RankLeft"},
    "op": "gather",
    "odd": [1],
    "says": ["rank 1", "left", "gather #2"],
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(np.ones(2))
    if rank == 1:
        time.sleep(2)  # the others have begun: a group that is broken refuses ops unnumbered
        dist.destroy_process_group()
        return
    results = [np.zeros(2) for _ in range(size)] if rank == 0 else None
    dist.gather(np.ones(2), results, dst=0)


main()
