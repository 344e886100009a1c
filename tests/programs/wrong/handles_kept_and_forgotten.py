"""Rank 1 keeps the handles of its reductions for the end of the epoch, where it waits for none of them."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "silent",
    "odd": [1],
    "warns": ["nobody waited for all_reduce on group 'world'"],
    "warned": [1],
    "verdict": {"kind": "leaked work", "ranks": [1]},
}


def main():
    dist.init_process_group("gloo")
    in_flight = []
    for _ in range(4):
        gradient = np.ones(8)
        in_flight.append(dist.all_reduce(gradient, async_op=True))  # <- rank 1
    if dist.get_rank() == 0:
        for work in in_flight:
            work.wait()
    dist.barrier()
    dist.destroy_process_group()  # <- also


main()
