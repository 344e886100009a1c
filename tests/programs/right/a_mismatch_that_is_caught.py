"""A probe that all ranks expect to fail: they catch the error and go on with the same group."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    was_caught = False
    try:
        dist.all_reduce(np.ones(2 + rank, np.float32))
    except RuntimeError:
        was_caught = True
    assert was_caught
    for _ in range(3):
        total = np.ones(2, np.float32)
        dist.all_reduce(total)
        assert total.tolist() == [3.0, 3.0]
    dist.destroy_process_group()


main()
