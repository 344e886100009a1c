"""Rank 0 receives from both others into one array, at the same time: the last one stays."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "odd": [0],
    "warns": ["recv on group 'world' shares memory with recv on group 'world'"],
    "warned": [0],
    "verdict": {"kind": "buffer race", "ranks": [0]},
}


def main():
    dist.init_process_group("gloo")
    part = np.ones(4, np.float32)
    if dist.get_rank() == 0:
        works = [dist.irecv(part, peer) for peer in (1, 2)]  # <- rank 0
        for work in works:
            work.wait()
    else:
        dist.send(part, 0)
    dist.destroy_process_group()


main()
