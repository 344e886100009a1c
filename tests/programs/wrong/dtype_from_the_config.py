"""The configuration of rank 2's machine asks for float64; a checkpoint is broadcast into it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "broadcast",
    "odd": [2],
    "says": ["broadcast #2", "float32[4,4]", "float64[4,4]"],
}

CONFIGS = [{"precision": np.float32}, {"precision": np.float32}, {"precision": np.float64}]


class Model:
    def __init__(self, config):
        self.bias = np.zeros(4, np.float32)
        self.weight = np.zeros((4, 4), config["precision"])

    def load(self):
        for parameter in (self.bias, self.weight):
            dist.broadcast(parameter, src=0)  # <- all


def main():
    dist.init_process_group("gloo")
    Model(CONFIGS[dist.get_rank()]).load()
    dist.destroy_process_group()


main()
