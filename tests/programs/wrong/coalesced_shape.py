"""Rank 1's second parameter has another length, in one coalesced reduction."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [1],
    "says": ["all_reduce", "float32[4]", "float32[6]"],
}


def main():
    dist.init_process_group("gloo")
    length = 6 if dist.get_rank() == 1 else 4
    gradients = [np.ones(3, np.float32), np.ones(length, np.float32)]
    dist.all_reduce_coalesced(gradients)  # <- all
    dist.destroy_process_group()


main()
