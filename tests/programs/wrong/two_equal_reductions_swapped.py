"""Rank 1 reduces the loss before the accuracy: both fit, so the results are swapped without an
error. Said as a suspicion.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "warns": ["all_reduce", "rank 1"],
    "env": {"DISTDBG_CHECK_CALL_SITES": "1"},
}


def main():
    dist.init_process_group("gloo")
    loss, accuracy = np.full(1, 0.5, np.float32), np.full(1, 0.9, np.float32)
    if dist.get_rank() == 1:
        dist.all_reduce(accuracy)  # <- odd
        dist.all_reduce(loss)
    else:
        dist.all_reduce(loss)  # <- others
        dist.all_reduce(accuracy)
    dist.destroy_process_group()


main()
