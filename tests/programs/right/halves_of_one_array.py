"""Two groups reduce slices of one array: views with an offset, different ones on
different ranks.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 4, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    lower, upper = dist.new_group([0, 1]), dist.new_group([2, 3])
    state = np.ones(10, np.float32)
    if rank < 2:
        dist.all_reduce(state[:5], group=lower)
    else:
        dist.all_reduce(state[5:], group=upper)
    dist.all_reduce(state)
    assert state.tolist() == [6.0] * 10
    dist.destroy_process_group()


main()
