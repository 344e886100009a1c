"""Shards of a vector that does not divide evenly: the last rank's shard is shorter on all ranks."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    lengths = [4, 4, 2]
    gradient = [np.full(length, float(shard), np.float32) for shard, length in enumerate(lengths)]
    mine = np.zeros(lengths[rank], np.float32)
    dist.reduce_scatter(mine, gradient)
    assert mine.tolist() == [float(rank * size)] * lengths[rank]
    dist.destroy_process_group()


main()
