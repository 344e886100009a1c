"""Ranks that are not in a group get a placeholder for it and do other things in the meantime."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    readers = dist.new_group([0, 2])
    if readers != dist.GroupMember.NON_GROUP_MEMBER:
        batch = np.full(2, float(dist.get_rank(readers)))
        dist.broadcast(batch, src=2, group=readers)
        assert batch.tolist() == [1.0, 1.0]
    dist.barrier()
    dist.destroy_process_group()


main()
