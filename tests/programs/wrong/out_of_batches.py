"""Rank 2's shard has fewer batches: it leaves the loop and goes to the barrier, the others train on."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [2],
    "says": ["#6", "all_reduce", "ranks 0-1", "barrier", "rank 2"],
    "torch": False,
}


def main():
    dist.init_process_group("gloo")
    for _ in dist.batches(range(5 if dist.get_rank() == 2 else 7)):
        dist.all_reduce(np.ones(4, np.float32))  # <- others, previous
    dist.barrier()  # <- odd
    dist.destroy_process_group()


main()
