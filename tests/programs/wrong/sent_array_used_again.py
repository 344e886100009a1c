"""Each block is computed in the array whose last block is still being sent; small messages hide that."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "silent",
    "odd": [0],
    "warns": [
        "the input of send on group 'world' was changed between its start and the wait for it"
    ],
    "warned": [0],
    "verdict": {"kind": "buffer race", "ranks": [0]},
}


def main():
    dist.init_process_group("gloo")
    block = np.zeros(16)
    for step in range(3):
        if dist.get_rank() == 0:
            block[:] = step
            work = dist.isend(block, 1)  # <- rank 0
            block += 0.5  # already the next one
            work.wait()  # <- also
        else:
            dist.recv(block, 0)
    dist.destroy_process_group()


main()
