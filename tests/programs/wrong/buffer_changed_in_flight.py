"""The gradient is zeroed for the next step while its reduction is still in flight."""

import time

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "BufferChangedError",
    "op": "all_reduce",
    "odd": [0],
    "says": ["all_reduce #1", "rank 0"],
    "env": {"DISTDBG_CHECK_BUFFERS": "1"},
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gradient = np.ones(8, np.float32)
    if rank == 1:
        time.sleep(0.3)  # rank 0's reduction waits for this rank
    work = dist.all_reduce(gradient, async_op=True)  # <- all
    if rank == 0:
        gradient[:] = 0.0
    work.wait()
    dist.destroy_process_group()


main()
