"""Gradients reduced in buckets while the backward pass goes on; each bucket is awaited only when
it is used.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}

LAYERS = [(3, 4), (4,), (4, 2), (2,)]


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for _ in range(6):
        in_flight = []
        for shape in reversed(LAYERS):
            gradient = np.full(shape, float(rank), np.float32)
            in_flight.append((dist.all_reduce(gradient, async_op=True), gradient))
        for work, gradient in in_flight:
            work.wait()
            assert float(gradient.sum()) == 3.0 * len(gradient.reshape(-1))
    assert size == 3
    dist.destroy_process_group()


main()
