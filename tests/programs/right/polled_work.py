"""Rank 0 asks again and again whether its op is done, the others just wait."""

import time

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = np.ones(2, np.float32)
    if rank == 2:
        time.sleep(0.1)  # so that the others have something to wait for
    work = dist.all_reduce(total, async_op=True)
    if rank == 0:
        while not work.is_completed():
            time.sleep(0.001)  # what a progress bar does
    work.wait()
    assert total.tolist() == [3.0, 3.0]
    dist.destroy_process_group()


main()
