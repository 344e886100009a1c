"""Rank 0 itself is late for a monitored barrier: the others name it."""

import time
from datetime import timedelta

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "*", 1: "OpTimeout", 2: "OpTimeout"},
    "missing": {1: [0], 2: [0]},
    "says": ["monitored_barrier"],
    "verdict": {"kind": "missing rank", "ranks": [0]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    dist.barrier()  # <- all
    if dist.get_rank() == 0:
        time.sleep(8)  # still loading
    dist.monitored_barrier(timeout=timedelta(seconds=2))


main()
