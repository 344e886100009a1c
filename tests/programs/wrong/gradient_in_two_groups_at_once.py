"""One gradient is reduced over row and column at the same time, instead of one after the other."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "silent",
    "odd": [0, 1],
    "warns": ["shares memory with all_reduce on group 'row', which is in flight"],
    "verdict": {"kind": "buffer race", "ranks": [0, 1]},
}


def main():
    dist.init_process_group("gloo")
    row = dist.new_group([0, 1], group_desc="row")
    column = dist.new_group([0, 1], group_desc="column")
    gradient = np.ones(64, np.float32)
    over_row = dist.all_reduce(gradient[:40], group=row, async_op=True)  # <- also
    over_column = dist.all_reduce(gradient[32:], group=column, async_op=True)  # <- all
    over_row.wait()
    over_column.wait()
    dist.destroy_process_group()


main()
