"""One array is read by several ops at once, and reduced twice in a row on one group: well defined."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    array, parts = np.ones(4), np.empty((3, 4))
    if dist.get_rank() == 0:
        works = [dist.isend(array, 1), dist.isend(array, 2)]
    else:
        works = [dist.irecv(parts[0], 0)]
    for work in works:
        work.wait()
    works = [
        dist.all_gather_into_tensor(parts.reshape(-1), array, async_op=True),
        dist.all_reduce(array, async_op=True),
        dist.all_reduce(array, async_op=True),
    ]
    for work in works:
        work.wait()
    assert parts.tolist() == np.ones((3, 4)).tolist()
    assert array.tolist() == [9.0] * 4
    halves = [dist.all_reduce(half, async_op=True) for half in (array[:2], array[2:])]
    for work in halves:
        work.wait()
    dist.destroy_process_group()


main()
