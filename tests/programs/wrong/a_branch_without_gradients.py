"""A batch of rank 1 has no images, so the gradients of one branch are not there in that step."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 4,
    "outcome": "MismatchError",
    "op": "DDP",
    "odd": [1],
    "says": ["DDP step 3", "rank 1 did not use image.weight, image.bias; ranks 0,2-3 did"],
    "torch": False,
}

SHAPES = {"text.weight": (5, 5), "text.bias": (5,), "image.weight": (6, 6), "image.bias": (6,)}


def backward(model, has_images):
    return {
        name: np.ones_like(value)
        for name, value in model.items()
        if has_images or not name.startswith("image")
    }


def main():
    dist.init_process_group("gloo")
    model = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    reducer = dist.GradientReducer(model)
    for step in range(5):
        has_images = not (dist.get_rank() == 1 and step == 2)
        reducer.reduce(backward(model, has_images))  # <- all
    dist.destroy_process_group()


main()
