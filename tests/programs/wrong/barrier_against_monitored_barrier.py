"""Rank 0 waits in a monitored barrier and the others in a plain one: they never meet."""

from datetime import timedelta

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "OpTimeout", 1: "RankLeft", 2: "RankLeft"},
    "op": "barrier",
    "odd": [0],
    "missing": {0: [1, 2]},
    "verdict": {"kind": "deadlock", "ranks": [0, 1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    if dist.get_rank() == 0:
        dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
    else:
        dist.barrier()  # <- ranks 1-2


main()
