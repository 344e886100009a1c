"""Rank 2 got no files and reduces an empty array."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [2],
    "says": ["all_reduce #1", "float32[4]", "float32[0]"],
}

FILES = {0: ["a", "b", "c", "d"], 1: ["e", "f", "g", "h"], 2: []}


def main():
    dist.init_process_group("gloo")
    scores = np.ones(len(FILES[dist.get_rank()]), np.float32)
    dist.all_reduce(scores)  # <- all
    dist.destroy_process_group()


main()
