"""Rank 0 sends with tag 5, rank 1 receives tag 6: each timeout says what was wanted."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "OpTimeout",
    "missing": {0: [1], 1: [0]},
    "says": ["tag 5"],
    "verdict": {"kind": "deadlock", "ranks": [0, 1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    message = np.ones(3)
    if dist.get_rank() == 0:
        dist.send(message, 1, tag=5)  # <- rank 0
    else:
        dist.recv(message, 0, tag=6)  # <- rank 1
    dist.destroy_process_group()


main()
