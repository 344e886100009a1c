"""Ranks have different numbers of batches and go on with empty ones until nobody has any: the
loop is decided together.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    batches = 2 + dist.get_rank()
    rounds = 0
    while True:
        has_batch = np.array([1 if rounds < batches else 0], np.int64)
        dist.all_reduce(has_batch)
        if int(has_batch[0]) == 0:
            break
        dist.all_reduce(np.ones(4, np.float32))
        rounds += 1
    assert rounds == 4
    dist.destroy_process_group()


main()
