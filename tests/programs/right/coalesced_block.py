"""Parameters broadcast in one coalesced call, gradients reduced in another."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    gradients = [np.full(length, 1.0, np.float32) for length in (3, 5, 1)]
    for _ in range(3):
        dist.all_reduce_coalesced(gradients)
    assert [part.tolist() for part in gradients] == [[27.0] * 3, [27.0] * 5, [27.0]]
    dist.destroy_process_group()


main()
