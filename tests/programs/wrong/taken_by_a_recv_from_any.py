"""Rank 0's first recv, from any rank, takes the message of rank 1 that its second one waits for."""

import time

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "RankLeft", 1: "silent", 2: "*"},
    "odd": [1],  # whom the error names; it did nothing wrong
    "verdict": {"kind": "missing rank", "ranks": [0]},
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    message = np.ones(3)
    if rank == 0:
        dist.recv(message)  # meant for rank 2, which is slower today
        dist.recv(message, 1)
    elif rank == 1:
        dist.send(message, 0)
    else:
        time.sleep(4)
        dist.send(message, 0)
    dist.destroy_process_group()


main()
