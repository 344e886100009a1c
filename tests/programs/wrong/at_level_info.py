"""At level INFO nobody waits for the comparison, and yet all are told."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [2],
    "says": ["all_reduce #2", "op SUM on ranks 0-1", "op MAX on rank 2"],
    "env": {"DISTDBG_DEBUG": "info"},
}


def main():
    dist.init_process_group("gloo")
    dist.barrier()
    loss = np.full(8, 0.5, np.float32)
    how = dist.ReduceOp.MAX if dist.get_rank() == 2 else dist.ReduceOp.SUM
    dist.all_reduce(loss, op=how)  # <- all
    dist.destroy_process_group()


main()
