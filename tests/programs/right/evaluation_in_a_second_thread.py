"""A second thread reduces metrics on a group of its own while the main thread trains."""

import threading

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def evaluate(group, totals):
    for _ in range(20):
        metric = np.ones(2, np.float64)
        dist.all_reduce(metric, group=group)
        totals.append(float(metric[0]))


def main():
    dist.init_process_group("gloo")
    metrics = dist.new_group()
    totals = []
    thread = threading.Thread(target=evaluate, args=(metrics, totals))
    thread.start()
    for _ in range(20):
        dist.all_reduce(np.ones(100, np.float32))
    thread.join()
    assert totals == [2.0] * 20
    dist.destroy_process_group()


main()
