"""Rank 2 has done its part in a subgroup and destroys it; the other members have too, only later;
the world goes on.
"""

import time

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    warm_up = dist.new_group()
    dist.all_reduce(np.ones(4), group=warm_up)
    if rank == 2:
        dist.destroy_process_group(warm_up)
    for _ in range(5):
        dist.all_reduce(np.ones(4))
        time.sleep(0.01)  # a step of the job
    if rank != 2:
        dist.destroy_process_group(warm_up)
    dist.barrier()
    dist.destroy_process_group()


main()
