"""Rank 1 has no data and waits in a barrier, while the others reduce."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [1],
    "says": ["#1", "all_reduce", "barrier"],
}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        dist.barrier()  # <- odd
    else:
        dist.all_reduce(np.ones(4, np.float32))  # <- others
    dist.destroy_process_group()


main()
