"""Every step makes a group of its own for its metrics, and no step destroys it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "odd": [0, 1],
    "warns": ["groups of the same ranks are made by one line, and never destroyed"],
    "warned": [0, 1],
    "verdict": {"kind": "leaked group", "ranks": [0, 1]},
}


def step(loss):
    metrics = dist.new_group([0, 1])  # <- ranks 0-1
    if dist.get_rank() < 2:
        dist.all_reduce(loss, group=metrics)


def main():
    dist.init_process_group("gloo")
    loss = np.ones(1)
    for _ in range(6):
        step(loss)
    dist.destroy_process_group()


main()
