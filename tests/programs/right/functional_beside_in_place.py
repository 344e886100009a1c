"""Rank 0 keeps its arrays and takes new ones, the others reduce and gather in place: the ops are the same."""

import numpy as np

import distdbg as dist
from distdbg import functional as F

TRUTH = {"ranks": 3, "outcome": "silent", "torch": False}


def main():
    dist.init_process_group("gloo")
    x = np.full(4, dist.get_rank() + 1.0)
    if dist.get_rank() == 0:
        total, rows, first = F.all_reduce(x), F.all_gather(x), F.broadcast(x, 1)
    else:
        total, rows, first = x.copy(), np.empty(12), x.copy()
        dist.all_reduce(total)
        dist.all_gather_into_tensor(rows, x)
        dist.broadcast(first, 1)
    assert total[0] == 6
    assert rows[::4].tolist() == [1, 2, 3]
    assert first[0] == 2
    dist.destroy_process_group()


main()
