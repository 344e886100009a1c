"""A helper starts a send and returns without the Work; only rank 0 calls it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "silent",
    "odd": [0],
    "warns": ["the Work of send on group 'world' was dropped, and nobody waited for it"],
    "warned": [0],
    "verdict": {"kind": "leaked work", "ranks": [0]},
}


def publish(weights):
    work = dist.isend(weights, 1)  # <- rank 0
    del work  # <- also


def main():
    dist.init_process_group("gloo")
    weights = np.ones(1 << 16)
    if dist.get_rank() == 0:
        dist.barrier()
        publish(weights)
    else:
        dist.barrier()
        dist.recv(weights, 0)
    dist.destroy_process_group()


main()
