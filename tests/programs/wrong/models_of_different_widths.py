"""Rank 2 was started with another configuration, so its model has a wider layer."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 4,
    "outcome": "MismatchError",
    "op": "DDP",
    "odd": [2],
    "says": ["models differ", "hidden.weight: float32[4,8] on ranks 0-1,3, float32[4,9] on rank 2"],
    "torch": False,
}


def make_model(width):
    shapes = {"hidden.weight": (4, width), "hidden.bias": (width,), "head.weight": (width, 2)}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def main():
    dist.init_process_group("gloo")
    model = make_model(9 if dist.get_rank() == 2 else 8)
    reducer = dist.GradientReducer(model)  # <- all
    reducer.reduce(model)
    dist.destroy_process_group()


main()
