"""A rank without data still participates, with arrays of no elements."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    nothing = np.zeros((0, 4), np.float32)
    dist.all_reduce(nothing)
    dist.broadcast(nothing, src=1)
    lengths = [0, 3]
    blocks = [np.zeros(length, np.float32) for length in lengths]
    dist.all_gather(blocks, np.full(lengths[rank], 2.0, np.float32))
    assert [block.tolist() for block in blocks] == [[], [2.0] * 3]
    dist.barrier()
    dist.destroy_process_group()


main()
