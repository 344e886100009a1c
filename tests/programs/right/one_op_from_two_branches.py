"""Each side of an if calls the same op from a line of its own: the lines differ, the op
does not.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def exchange(rank):
    value = np.zeros(2, np.float32)
    if rank == 0:
        value[:] = 7.0
        dist.broadcast(value, src=0)
    else:
        dist.broadcast(value, src=0)
    return value


def main():
    dist.init_process_group("gloo")
    for _ in range(3):
        assert exchange(dist.get_rank()).tolist() == [7.0, 7.0]
    dist.destroy_process_group()


main()
