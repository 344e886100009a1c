"""Rank 1 reduces the accuracy before the loss. Both calls fit, so the results are swapped without
an error; the lines tell, which is said as a suspicion.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "odd": [1],
    "warns": ["op #1", "op #2", "look swapped", "rank 1"],
    "env": {"DISTDBG_CHECK_ORDER": "1"},
    "verdict": {"kind": "suspicion", "ranks": [1], "lines_of": []},
}


def reduce_loss(value):
    dist.all_reduce(np.full(1, value, np.float32))  # <- others


def reduce_accuracy(value):
    dist.all_reduce(np.full(1, value, np.float32))  # <- odd


def main():
    dist.init_process_group("gloo")
    metrics = [reduce_loss, reduce_accuracy]
    if dist.get_rank() == 1:
        metrics.reverse()
    for metric in metrics:
        metric(0.5)
    dist.destroy_process_group()


main()
