"""Each rank passes its own number as the source: no two agree."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "broadcast",
    "says": ["broadcast #1", "root 0 on rank 0", "root 1 on rank 1", "root 2 on rank 2"],
}


def main():
    dist.init_process_group("gloo")
    seed = np.full(1, 42, np.int64)
    dist.broadcast(seed, src=dist.get_rank())  # <- all
    dist.destroy_process_group()


main()
