"""Two groups of all ranks, used asynchronously in another order by rank 1: legal, as each group
has its own order.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    tensor_parallel, data_parallel = dist.new_group(), dist.new_group()
    losses = np.full(4, 2.0, np.float32)
    weights = np.ones((3, 2), np.float32)
    order = [(tensor_parallel, losses), (data_parallel, weights)]
    if dist.get_rank() == 1:
        order.reverse()
    works = [dist.all_reduce(x, group=group, async_op=True) for group, x in order]
    for work in works:
        work.wait()
    assert losses.tolist() == [6.0] * 4
    assert weights.tolist() == [[3.0, 3.0]] * 3
    dist.destroy_process_group()


main()
