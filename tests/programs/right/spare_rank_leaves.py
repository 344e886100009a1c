"""A spare rank leaves all groups once training begins; the others work on in a group without it."""

import time

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    workers = dist.new_group([0, 1])
    dist.barrier()
    if rank == 2:
        dist.destroy_process_group()
        return
    for _ in range(3):
        time.sleep(0.1)  # a step of the job
        total = np.ones(2, np.float32)
        dist.all_reduce(total, group=workers)
        assert total.tolist() == [2.0, 2.0]
    dist.destroy_process_group(workers)


main()
