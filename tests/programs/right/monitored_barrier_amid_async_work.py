"""A monitored barrier while reductions are in flight: it has its own way and disturbs none of
them.
"""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    parts = [np.ones(1000, np.float32) for _ in range(4)]
    works = [dist.all_reduce(part, async_op=True) for part in parts]
    dist.monitored_barrier(timeout=timedelta(seconds=10))
    for work in works:
        work.wait()
    dist.monitored_barrier(timeout=timedelta(seconds=10), wait_all_ranks=True)
    dist.all_reduce(parts[0])
    assert float(parts[0][0]) == 9.0
    dist.destroy_process_group()


main()
