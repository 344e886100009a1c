"""Rank 0 receives from anybody, and nobody sends: the others have gone on to the barrier."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "OpTimeout", 1: "OpTimeout", 2: "OpTimeout"},
    "missing": {1: [0], 2: [0]},
    "verdict": {"kind": "deadlock", "ranks": [0, 1, 2]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    if dist.get_rank() == 0:
        dist.recv(np.zeros(2))  # <- rank 0
    dist.barrier()
    dist.destroy_process_group()


main()
