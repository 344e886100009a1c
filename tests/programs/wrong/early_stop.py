"""Rank 1 stops early by its own loss and breaks out of the loop; the others go on."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [1],
    "says": ["#3", "all_reduce", "ranks 0,2", "barrier", "rank 1"],
}


def main():
    dist.init_process_group("gloo")
    for step in range(5):
        gradient = np.ones(4, np.float32)
        if dist.get_rank() == 1 and step == 2:
            break
        dist.all_reduce(gradient)  # <- others, previous
    dist.barrier()  # <- odd
    dist.destroy_process_group()


main()
