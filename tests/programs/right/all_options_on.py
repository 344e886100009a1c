"""A training loop with every option of the check: branches with equal ops, buffers used again
after the wait, finite numbers, equal outputs.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "env": {
        "DISTDBG_CHECK_ORDER": "1",
        "DISTDBG_CHECK_BUFFERS": "1",
        "DISTDBG_CHECK_NONFINITE": "1",
        "DISTDBG_CHECKSUM_EVERY": "2",
    },
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gradients = [np.ones(shape, np.float32) for shape in ((4, 2), (8,), (1,))]
    for _ in range(6):
        works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
        for work, gradient in zip(works, gradients, strict=True):
            work.wait()
            assert float(gradient.reshape(-1)[0]) == 3.0
            gradient[:] = 1.0
        metric = np.full(2, float(rank))
        if rank == 0:
            dist.all_reduce(metric)
        else:
            dist.all_reduce(metric)
        assert metric.tolist() == [3.0, 3.0]
    dist.destroy_process_group()


main()
