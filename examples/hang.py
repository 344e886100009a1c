"""A job that hangs: at step 20 rank 2 asks rank 0 for more work, and rank 0 is in an all_reduce.

    distdbg run --nproc-per-node 4 examples/hang.py
    distdbg run --nproc-per-node 4 --on-deadlock report examples/hang.py     leave it hanging

Nothing of it is wrong for the eye of one rank. `distdbg` sees that no rank of it can go on.
"""

from __future__ import annotations

import numpy as np

import distdbg as dist

STEPS = 40
OUT_OF_WORK = 20
HUNGRY = 2


def ask_for_work(shard: np.ndarray) -> None:
    """Wait for rank 0 to send some; it never does."""
    dist.recv(shard, src=0)


def train() -> None:
    gradient = np.ones(1024, np.float32)
    shard = np.zeros(1024, np.float32)
    for step in range(STEPS):
        if dist.get_rank() == HUNGRY and step == OUT_OF_WORK:
            ask_for_work(shard)
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)


if __name__ == "__main__":
    dist.init_process_group()
    train()
