"""Rank 1 exchanges float64 tokens, the others float32."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_to_all",
    "odd": [1],
    "says": ["all_to_all #1", "float32", "float64"],
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    dtype = np.float64 if rank == 1 else np.float32
    tokens = np.ones(size * 2, dtype)
    received = np.zeros(size * 2, dtype)
    dist.all_to_all_single(received, tokens)  # <- all
    dist.destroy_process_group()


main()
