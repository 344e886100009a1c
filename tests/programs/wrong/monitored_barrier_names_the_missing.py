"""Ranks 1 and 2 are late for a monitored barrier; all that came name both."""

import time
from datetime import timedelta

import distdbg as dist

TRUTH = {
    "ranks": 4,
    "outcome": {0: "OpTimeout", 1: "*", 2: "*", 3: "OpTimeout"},
    "missing": {0: [1, 2], 3: [1, 2]},
    "says": ["monitored_barrier"],
    "verdict": {"kind": "missing rank", "ranks": [1, 2]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    dist.barrier()  # <- all
    if dist.get_rank() in (1, 2):
        time.sleep(8)  # still loading
    dist.monitored_barrier(timeout=timedelta(seconds=2), wait_all_ranks=True)


main()
