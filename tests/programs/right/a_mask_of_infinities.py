"""Masked positions hold minus infinity, and the maximum over the ranks is what is wanted: a value
that looks wrong, with the option for it off.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    scores = np.full(4, -np.inf, np.float32)
    scores[2 * dist.get_rank()] = 1.0
    dist.all_reduce(scores, op=dist.ReduceOp.MAX)
    assert scores.tolist() == [1.0, -np.inf, 1.0, -np.inf]
    dist.destroy_process_group()


main()
