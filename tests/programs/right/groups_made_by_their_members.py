"""Only the members make their group (use_local_synchronization): rank 3 makes none, rank 1 makes
two.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 4, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for members in ([0, 1], [1, 2]):
        if rank in members:
            group = dist.new_group(members, use_local_synchronization=True)
            share = np.full(3, float(rank), np.float32)
            dist.all_reduce(share, group=group)
            assert share.tolist() == [float(sum(members))] * 3
    everybody = dist.new_group()
    dist.barrier(group=everybody)
    dist.destroy_process_group()


main()
