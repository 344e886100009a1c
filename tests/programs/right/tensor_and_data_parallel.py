"""Rows and columns of a mesh: every rank is in one of each, and rows are used more often than
columns.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 4, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    row, column = rows[rank // 2], columns[rank % 2]
    for _ in range(3):
        for _ in range(1 + 2 * (rank // 2)):  # the second row has more layers
            dist.all_reduce(np.ones(3), group=row)
        gradient = np.full(2, float(rank))
        dist.all_reduce(gradient, group=column)
        assert gradient.tolist() == [float(2 * (rank % 2) + 2)] * 2
    dist.destroy_process_group()


main()
