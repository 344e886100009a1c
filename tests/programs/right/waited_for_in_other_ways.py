"""Futures, polls, coalesced blocks, batches, synchronize, and a handle that another function waits for."""

import time

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def start(array):
    return dist.all_reduce(array, async_op=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    array, other = np.ones(8), np.ones(8)
    for _ in range(3):
        start(array).get_future().then(lambda future: future.value()).wait()
        start(array).synchronize()
        work = start(array)
        while not work.is_completed():
            time.sleep(0.001)  # polling is one of the ways
        start(array).get_future_result().wait()
        with dist._coalescing_manager(async_ops=True) as block:
            dist.all_reduce(array)
            dist.all_reduce(other)
        block.wait()
        dist.all_reduce_coalesced([array, other], async_op=True).wait()
        batch = [dist.P2POp(dist.isend, array, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        dist.group.WORLD.allreduce([array]).wait()
    dist.destroy_process_group()


main()
