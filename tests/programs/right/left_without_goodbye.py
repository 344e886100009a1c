"""The script ends without destroy_process_group, as most do, and rank 2 ends before the others
talk on.
"""

import time

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.all_reduce(np.ones(4))
    if rank == 2:
        return
    time.sleep(0.3)  # rank 2 is gone by now
    message = np.full(2, float(rank))
    if rank == 0:
        dist.send(message, 1)
    else:
        dist.recv(message, 0)
        assert message.tolist() == [0.0, 0.0]


main()
