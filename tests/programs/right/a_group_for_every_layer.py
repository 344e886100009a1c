"""Every layer makes a group of the same ranks for itself and keeps it until the program ends."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


class Layer:
    """Has weights that are alike on all ranks."""

    def __init__(self):
        self.group = dist.new_group()
        self.weights = np.ones(4)
        dist.broadcast(self.weights, 0, group=self.group)


def main():
    dist.init_process_group("gloo")
    layers = [Layer() for _ in range(8)]
    for layer in layers:
        dist.all_reduce(layer.weights, group=layer.group)


main()
dist.destroy_process_group()
