"""Rank 0 checks its arguments late and calls sys.exit, when the others are in a barrier."""

import sys

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "exit 3", 1: "RankLeft", 2: "RankLeft"},
    "op": "barrier",
    "odd": [0],
    "says": ["rank 0", "left", "barrier #1"],
}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        sys.exit(3)
    dist.barrier()


main()
