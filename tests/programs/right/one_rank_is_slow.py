"""Rank 1 needs longer for every step: a straggler, but all do the same."""

import time

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for _ in range(4):
        if rank == 1:
            time.sleep(0.15)  # a longer sequence in its batch
        gradient = np.ones((8, 8), np.float32)
        dist.all_reduce(gradient)
        assert float(gradient[0, 0]) == 3.0
    dist.destroy_process_group()


main()
