"""Results are written to as soon as anything has shown that their op is over, before its own wait."""

import threading

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def poll(gradient):
    work = dist.all_reduce(gradient, async_op=True)
    while not work.is_completed():
        pass
    gradient[:] = 1.0
    work.wait()


def in_a_callback(gradient):
    def scale(future):
        gradient[:] = 1.0
        return [gradient]

    work = dist.all_reduce(gradient, async_op=True)
    scaled = work.get_future().then(scale)
    scaled.wait()
    gradient[:] = 2.0
    work.wait()


def behind_a_later_one(gradient):
    works = [dist.all_reduce(gradient, async_op=True) for _ in range(4)]
    works[-1].wait()
    gradient[:] = 1.0
    for work in works[:-1]:
        work.wait()


def by_two_threads(gradient):
    work = dist.all_reduce(gradient, async_op=True)

    def use():
        work.wait()
        with once:
            gradient[:] = 1.0

    once = threading.Lock()
    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    dist.init_process_group("gloo")
    for size in (1, 5000):
        gradient = np.ones(size, np.float32)
        for _ in range(20):
            poll(gradient)
            in_a_callback(gradient)
            behind_a_later_one(gradient)
            by_two_threads(gradient)
    dist.destroy_process_group()


main()
