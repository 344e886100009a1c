"""Rank 1 keeps its matrix transposed; the elements belong together all the same, and the sum is
right.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    else:
        matrix = np.array([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]], np.float32).T
    dist.all_reduce(matrix)
    assert matrix.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    dist.destroy_process_group()


main()
