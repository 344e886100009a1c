"""The gradient is zeroed for the next step while its reduction is still in flight."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "BufferChangedError",
    "op": "all_reduce",
    "odd": [0],
    "says": ["all_reduce #2", "rank 0"],
    "env": {"DISTDBG_CHECK_BUFFERS": "1"},
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loss = np.ones(1, np.float32)
    gradient = np.ones(8, np.float32)
    zeroed = np.zeros(1, np.float32)
    if rank == 1:
        dist.recv(zeroed, 0)  # so rank 0's reductions have not begun by then
    works = [dist.all_reduce(loss, async_op=True)]
    works.append(dist.all_reduce(gradient, async_op=True))  # <- all
    if rank == 0:
        gradient[:] = 0.0
        dist.send(zeroed, 1)
    for work in works:
        work.wait()
    dist.destroy_process_group()


main()
