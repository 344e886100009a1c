"""Rank 2's batch uses no images, so one layer has no gradient there and its reduction is left
out.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [2],
    "says": ["all_reduce #2", "float32[3,3] on ranks 0-1", "float32[5] on rank 2"],
}

SHAPES = {"head": (2, 2), "image_encoder": (3, 3), "text_encoder": (5,)}


def backward(has_images):
    for layer, shape in SHAPES.items():
        if layer != "image_encoder" or has_images:
            yield np.ones(shape, np.float32)


def main():
    dist.init_process_group("gloo")
    for gradient in backward(has_images=dist.get_rank() != 2):
        dist.all_reduce(gradient)  # <- all
    dist.destroy_process_group()


main()
