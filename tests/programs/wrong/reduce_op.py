"""Rank 2 takes the maximum of the losses, the others their sum."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [2],
    "says": ["all_reduce #1", "op SUM on ranks 0-1", "op MAX on rank 2"],
}


def main():
    dist.init_process_group("gloo")
    loss = np.full(1, 0.5, np.float32)
    how = dist.ReduceOp.MAX if dist.get_rank() == 2 else dist.ReduceOp.SUM
    dist.all_reduce(loss, op=how)  # <- all
    dist.destroy_process_group()


main()
