"""Arrays are used again as soon as their op was waited for, and read at any time while it is in flight."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    block, back, both = np.zeros(5000), np.zeros(5000), np.zeros((2, 5000))
    for step in range(3):
        block[:] = step
        works = [dist.isend(block, 1 - rank), dist.irecv(back, 1 - rank)]
        assert block.sum() == 5000.0 * step
        for work in works:
            work.wait()
        block += back
        work = dist.all_gather_into_tensor(both.reshape(-1), block, async_op=True)
        work.wait()
        block -= 1.0
        work = dist.reduce_scatter_tensor(block, both.reshape(-1), async_op=True)
        work.get_future().wait()
        both[:] = 0.0
    dist.destroy_process_group()


main()
