"""Rank 1 registered its parameters in reverse, so its gradient buckets come in another order."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [1],
    "says": ["all_reduce #1", "float32[4,2]", "float32[2]"],
}


def main():
    dist.init_process_group("gloo")
    shapes = [(4, 2), (3, 4), (2,)]
    if dist.get_rank() == 1:
        shapes.reverse()
    gradients = [np.ones(shape, np.float32) for shape in shapes]
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]  # <- all
    for work in works:
        work.wait()
    dist.destroy_process_group()


main()
