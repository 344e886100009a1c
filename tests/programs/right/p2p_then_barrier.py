"""Ranks 0 and 1 exchange a message of their own before a barrier of all: messages are not counted
as ops of the group.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    config = np.arange(4, dtype=np.int64)
    if rank == 0:
        dist.send(config, 1)
    elif rank == 1:
        config[:] = 0
        dist.recv(config, 0)
    dist.barrier()
    assert config.tolist() == [0, 1, 2, 3]
    dist.destroy_process_group()


main()
