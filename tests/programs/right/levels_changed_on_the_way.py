"""Ranks switch the debug level at different ops; the ops themselves are the same."""

import numpy as np

import distdbg as dist

# in torch the level of a group is fixed when it is made
TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    levels = [dist.DebugLevel.OFF, dist.DebugLevel.DETAIL, dist.DebugLevel.INFO]
    for step in range(12):
        if step % 4 == rank:
            dist.set_debug_level(levels[(step // 4 + rank) % 3])
        total = np.full(3, float(step))
        dist.all_reduce(total)
        assert total.tolist() == [2.0 * step] * 3
    dist.destroy_process_group()


main()
