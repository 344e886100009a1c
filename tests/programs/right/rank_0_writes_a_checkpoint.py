"""Rank 0 writes a checkpoint for a while and the others wait in the barrier after it: late, but
all arrive.
"""

import time

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def save(weights):
    time.sleep(1.2)  # a slow disk
    return weights.tolist()


def main():
    dist.init_process_group("gloo")
    weights = np.ones((16, 16), np.float32)
    for step in range(3):
        dist.all_reduce(weights)
        if step == 1 and dist.get_rank() == 0:
            save(weights)
        dist.barrier()
    dist.destroy_process_group()


main()
