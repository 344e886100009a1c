"""Each rank broadcasts its shard in turn, and collects a reduction in turn: the root changes from
op to op.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 4, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for root in range(size):
        shard = np.full(3, float(rank), np.float32)
        dist.broadcast(shard, src=root)
        assert shard.tolist() == [float(root)] * 3
        total = np.ones(2, np.float32)
        dist.reduce(total, dst=root)
        assert rank != root or total.tolist() == [float(size)] * 2
    dist.destroy_process_group()


main()
