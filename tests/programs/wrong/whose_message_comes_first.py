"""Rank 0 takes the first message for rank 1's and the second for rank 2's, and asks neither whose it is."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "odd": [0],
    "verdict": {"kind": "message race", "ranks": [0]},
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        left, right = np.zeros(4), np.zeros(4)
        dist.recv(left)  # <- odd
        dist.recv(right)  # <- also
        assert sorted([left[0], right[0]]) == [1.0, 2.0]
    else:
        dist.send(np.full(4, float(rank)), 0)
    dist.barrier()
    dist.destroy_process_group()


main()
