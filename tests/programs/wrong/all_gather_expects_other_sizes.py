"""Rank 0 believes that rank 2 has 3 rows; rank 2 and the others know of 2."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_gather",
    "odd": [0],
    "says": ["all_gather #1"],
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = [1, 4, 3] if rank == 0 else [1, 4, 2]
    blocks = [np.zeros((count, 2), np.float32) for count in rows]
    dist.all_gather(blocks, np.ones((rows[rank], 2), np.float32))  # <- all
    dist.destroy_process_group()


main()
