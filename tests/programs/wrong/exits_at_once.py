"""Rank 1 ends by os._exit, without any clean-up: that is not leaving, it is gone."""

import os

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "PeerLost", 1: "exit 7", 2: "PeerLost"},
    "op": "all_reduce",
    "odd": [1],
}


def main():
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(7)
    dist.all_reduce(np.ones(4))


main()
