"""Rank 1 has frozen a layer, so it reduces two gradients where the others reduce three."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "odd": [1],
    "says": ["all_reduce", "rank 1"],
}


def main():
    dist.init_process_group("gloo")
    count = 2 if dist.get_rank() == 1 else 3
    gradients = [np.ones(4, np.float32) for _ in range(count)]
    dist.all_reduce_coalesced(gradients)  # <- all
    dist.all_reduce(np.ones(4, np.float32))
    dist.destroy_process_group()


main()
