"""Rank 0 sends floats, rank 1 reads the same bits as integers."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "MismatchError",
    "says": ["rank 0 sent 4 float32", "rank 1 expects 4 int32"],
}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        dist.send(np.ones(4, np.float32), 1)  # <- rank 0
    else:
        dist.recv(np.zeros(4, np.int32), 0)  # <- rank 1
    dist.destroy_process_group()


main()
