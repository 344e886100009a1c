"""Rank 0 alone has a logger, with a group of one rank and messages to itself that nobody else
is in.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logger = dist.new_group([0])
    history = []
    for step in range(4):
        loss = np.full(1, float(step + rank), np.float32)
        dist.all_reduce(loss)
        if rank == 0:
            history.append(float(loss[0]))
            dist.barrier(group=logger)
            dist.all_reduce(np.ones(2), group=logger)
    if rank == 0:
        assert history == [1.0, 3.0, 5.0, 7.0]
    dist.destroy_process_group()


main()
