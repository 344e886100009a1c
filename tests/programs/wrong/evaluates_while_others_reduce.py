"""Rank 2 leaves the loop of its epoch early, and gathers its accuracy while the others reduce gradients."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 4,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [2],
    "torch": False,
    "says": ["op #9", "all_reduce float32[73] on ranks 0-1,3", "barrier on rank 2"],
}


def main():
    dist.init_process_group("gloo")
    model = {"weight": np.zeros((8, 8), np.float32), "bias": np.zeros(8, np.float32)}
    reducer = dist.GradientReducer(model)
    batches = 2 if dist.get_rank() == 2 else 3
    for _ in range(batches):
        reducer.reduce({name: np.ones_like(value) for name, value in model.items()})  # <- others
    dist.barrier()  # <- odd
    dist.destroy_process_group()


main()
