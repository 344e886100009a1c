"""Rank 2 waits for rank 1, but it is rank 0 that sends to it."""

import time
from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "OpTimeout", 1: "silent", 2: "OpTimeout"},
    "missing": {0: [2], 2: [1]},
    "verdict": {"kind": "missing rank", "ranks": [1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    rank = dist.get_rank()
    message = np.ones(3)
    if rank == 0:
        dist.send(message, 2)
    elif rank == 2:
        dist.recv(message, 1)  # <- rank 2
    else:
        time.sleep(8)  # a long computation, and no op before it


main()
