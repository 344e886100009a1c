"""Rank 1 makes its group with another timeout, which is its own affair as long as all arrive."""

import os
from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    limit = timedelta(seconds=60 if os.environ["RANK"] == "1" else 30)
    dist.init_process_group("gloo", timeout=limit)
    group = dist.new_group(timeout=limit * 2)
    total = np.ones(3)
    dist.all_reduce(total, group=group)
    dist.barrier()
    assert total.tolist() == [2.0] * 3
    dist.destroy_process_group()


main()
