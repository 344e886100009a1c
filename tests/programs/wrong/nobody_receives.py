"""Rank 0 sends a result that rank 1 never receives; rank 1 is in a barrier."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "OpTimeout",
    "missing": {0: [1], 1: [0]},
    "verdict": {"kind": "deadlock", "ranks": [0, 1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    if dist.get_rank() == 0:
        dist.send(np.ones(3), 1)  # <- rank 0
    dist.barrier()  # <- rank 1
    dist.destroy_process_group()


main()
