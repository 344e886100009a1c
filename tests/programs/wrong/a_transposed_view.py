"""Rank 1 reduces a transposed view. The sum is right, since elements are matched by index; but
another line made it, which is suspicious.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "odd": [1],
    "warns": ["op #1", "memory layouts", "rank 1"],
    "env": {"DISTDBG_CHECK_ORDER": "1"},
    "verdict": {"kind": "suspicion", "ranks": [1]},
}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        matrix = np.arange(6, dtype=np.float32).reshape(3, 2).T
        dist.all_reduce(matrix)  # <- odd
    else:
        matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
        dist.all_reduce(matrix)  # <- others
    assert matrix.tolist() == [[0.0, 4.0, 8.0], [7.0, 11.0, 15.0]]
    dist.destroy_process_group()


main()
