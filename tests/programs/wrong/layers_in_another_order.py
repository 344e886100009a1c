"""Rank 1 makes its layers from a set, whose order is another one there: same names, same shapes."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "DDP",
    "odd": [1],
    "says": ["parameter 0 in order: decoder on ranks 0,2, encoder on rank 1"],
    "torch": False,
}


def make_model(layers):
    return {layer: np.zeros((3, 3), np.float32) for layer in layers}


def main():
    dist.init_process_group("gloo")
    layers = ["decoder", "encoder"]
    if dist.get_rank() == 1:
        layers.reverse()
    model = make_model(layers)
    reducer = dist.GradientReducer(model)  # <- all
    reducer.reduce(model)
    dist.destroy_process_group()


main()
