"""Rank 1 has one batch less than the others, who reduce the gradients of the last one without it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "RankLeft", 1: "silent", 2: "RankLeft"},
    "op": "all_reduce",
    "odd": [1],
    "says": ["DDP step 4", "rank 1 left", "needed for DDP bucket 0"],
    "torch": False,
}


def main():
    dist.init_process_group("gloo")
    model = {"weight": np.zeros((8, 8), np.float32), "bias": np.zeros(8, np.float32)}
    reducer = dist.GradientReducer(model)
    batches = 3 if dist.get_rank() == 1 else 4
    for _ in range(batches):
        reducer.reduce({name: np.ones_like(value) for name, value in model.items()})  # <- others
    dist.destroy_process_group()


main()
