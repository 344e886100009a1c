"""The gradient is zeroed for the next step while its reduction waits behind another one."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "silent",
    "odd": [0],
    "warns": [
        "an array of all_reduce on group 'world' was written to between its start and the wait for it"
    ],
    "warned": [0],
    "verdict": {"kind": "buffer race", "ranks": [0]},
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
    works.append(dist.all_reduce(gradient, async_op=True))  # <- rank 0
    if rank == 0:
        gradient[:] = 0.0
        dist.send(zeroed, 1)
    for work in works:
        work.wait()  # <- also
    dist.destroy_process_group()


main()
