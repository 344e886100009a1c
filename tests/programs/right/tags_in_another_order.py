"""The receiver takes the messages in the opposite order of the sender; tags keep them apart."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        works = [dist.isend(np.full(tag + 1, float(tag)), 1, tag=tag) for tag in range(4)]
        for work in works:
            work.wait()
    else:
        for tag in reversed(range(4)):
            message = np.zeros(tag + 1)
            dist.recv(message, 0, tag=tag)
            assert message.tolist() == [float(tag)] * (tag + 1)
    dist.destroy_process_group()


main()
