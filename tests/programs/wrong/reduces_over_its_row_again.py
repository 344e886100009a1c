"""Rows, columns, rows: rank 1 takes its row for the column, and its call pairs with rank 0's next one."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 4,
    "outcome": {0: "silent", 1: "RankLeft", 2: "*", 3: "*"},
    "op": "all_reduce",
    "odd": [0],  # whom the error names; it did nothing wrong
    "verdict": {"kind": "missing rank", "ranks": [1]},
}


def average(values, group):
    dist.all_reduce(values, group=group)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    values = np.ones(32, np.float32)
    average(values, rows[rank // 2])
    average(values, rows[0] if rank == 1 else columns[rank % 2])
    average(values, rows[rank // 2])
    dist.destroy_process_group()


main()
