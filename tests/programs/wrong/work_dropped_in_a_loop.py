"""A metric is reduced asynchronously at every step, and the Work is dropped: nobody waits for it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "odd": [0, 1, 2],
    "warns": ["LatentWarning", "the Work of all_reduce on group 'world' was dropped"],
    "verdict": {"kind": "leaked work", "ranks": [0, 1, 2]},
}


def main():
    dist.init_process_group("gloo")
    for _ in range(5):
        loss = np.ones(1, np.float32)
        dist.all_reduce(loss, async_op=True)  # <- all
        dist.barrier()
    dist.destroy_process_group()


main()
