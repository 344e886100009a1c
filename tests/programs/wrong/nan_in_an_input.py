"""Rank 2's loss is not a number; the reduction would spread it to all ranks."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "NonFiniteError",
    "op": "all_reduce",
    "odd": [2],
    "says": ["all_reduce #2", "rank 2"],
    "env": {"DISTDBG_CHECK_NONFINITE": "1"},
}


def main():
    dist.init_process_group("gloo")
    for step in range(3):
        loss = np.full(4, 0.5, np.float32)
        if dist.get_rank() == 2 and step == 1:
            loss[1] = np.nan
        dist.all_reduce(loss)  # <- all
    dist.destroy_process_group()


main()
