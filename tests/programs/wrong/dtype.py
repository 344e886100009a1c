"""Rank 0 counts its tokens in integers, the others in floats."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [0],
    "says": ["all_reduce #1", "int32[4]", "float32[4]"],
}


def count_tokens(rank):
    return np.ones(4, np.int32 if rank == 0 else np.float32)


def main():
    dist.init_process_group("gloo")
    tokens = count_tokens(dist.get_rank())
    dist.all_reduce(tokens)  # <- all
    dist.destroy_process_group()


main()
