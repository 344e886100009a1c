"""Works are waited for in another order than they were started, and another one on each rank."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    parts = [np.full(4, float(index), np.float32) for index in range(5)]
    works = [dist.all_reduce(part, async_op=True) for part in parts]
    if rank == 1:
        works.reverse()
    if rank == 2:
        works = works[2:] + works[:2]
    for work in works:
        work.wait()
    assert [float(part[0]) for part in parts] == [0.0, 3.0, 6.0, 9.0, 12.0]
    dist.destroy_process_group()


main()
