"""The last batch of rank 2 is shorter, so its activations are too."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [2],
    "says": ["all_reduce #4", "float32[4,8]", "float32[3,8]", "ranks 0-1", "rank 2"],
}


def train_step(batch):
    activations = np.ones((batch, 8), np.float32)
    dist.all_reduce(activations)  # <- all
    return activations


def main():
    dist.init_process_group("gloo")
    for step in range(4):
        is_last = step == 3
        train_step(3 if is_last and dist.get_rank() == 2 else 4)
    dist.destroy_process_group()


main()
