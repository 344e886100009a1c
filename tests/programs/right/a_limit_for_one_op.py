"""The first op may take long, for it waits for a slow start; the limit is for this op alone, on
one rank.
"""

import time
from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    if dist.get_rank() == 1:
        time.sleep(0.3)  # compiles something
    work = dist.barrier(async_op=True)
    work.wait(timedelta(seconds=20))
    total = np.ones(3)
    dist.all_reduce(total, async_op=True).wait()
    assert total.tolist() == [2.0] * 3
    dist.destroy_process_group()


main()
