"""Rank 1 waits for a message that rank 0 never sends: it has done all it does and returned."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": {0: "silent", 1: "RankLeft"},
    "op": "recv",
    "odd": [0],
    "says": ["rank 0", "left", "recv"],
}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.send(np.ones(2), 1)
    else:
        for _ in range(2):
            dist.recv(np.zeros(2), 0)


main()
