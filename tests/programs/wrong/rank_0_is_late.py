"""Rank 0 writes a checkpoint for longer than the timeout: the late rank is the one that others
ask.
"""

import time
from datetime import timedelta

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "CollectiveError", 1: "OpTimeout", 2: "OpTimeout"},
    "op": "barrier",
    "missing": {1: [0], 2: [0]},
    "says": ["barrier #2", "rank 0"],
    "verdict": {"kind": "missing rank", "ranks": [0]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    dist.barrier()  # <- all
    if dist.get_rank() == 0:
        time.sleep(8)  # a slow disk
    dist.barrier()
    dist.destroy_process_group()


main()
