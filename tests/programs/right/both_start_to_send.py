"""Both ranks start to send before they receive: with isend nobody waits."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    outgoing = np.full(1000, float(rank), np.float32)
    incoming = np.zeros(1000, np.float32)
    work = dist.isend(outgoing, 1 - rank)
    dist.recv(incoming, 1 - rank)
    work.wait()
    assert float(incoming[999]) == 1.0 - rank
    dist.destroy_process_group()


main()
