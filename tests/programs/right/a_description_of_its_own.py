"""Each rank describes the group in its own words, which is for messages only."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    peers = dist.new_group(group_desc=f"seen from rank {dist.get_rank()}")
    total = np.ones(2)
    dist.all_reduce(total, group=peers)
    assert total.tolist() == [3.0, 3.0]
    dist.destroy_process_group()


main()
