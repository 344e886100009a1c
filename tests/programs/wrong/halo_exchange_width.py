"""Neighbours exchange their borders asynchronously; rank 1 keeps a wider halo than its
neighbour's border.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "MismatchError",
    "says": ["rank 0 sent 8 float64", "rank 1 expects 9 float64"],
}


def exchange(rank, width):
    border, halo = np.ones(8), np.zeros(width)
    ops = [
        dist.P2POp(dist.isend, border, 1 - rank),
        dist.P2POp(dist.irecv, halo, 1 - rank),
    ]
    for work in dist.batch_isend_irecv(ops):  # <- all
        work.wait()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    exchange(rank, width=8 + rank)
    dist.destroy_process_group()


main()
