"""Rank 2 destroys a subgroup that the others use once more."""

import time

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": {0: "RankLeft", 1: "RankLeft", 2: "*"},
    "op": "all_reduce",
    "odd": [2],
    "says": ["rank 2", "left", "all_reduce #2 on group 'evaluation'"],
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    evaluation = dist.new_group(group_desc="evaluation")
    for step in range(2):
        if rank == 2 and step == 1:
            time.sleep(2)  # the others have begun: a group that is broken refuses ops unnumbered
            dist.destroy_process_group(evaluation)
            break
        dist.all_reduce(np.ones(2), group=evaluation)
    dist.barrier()


main()
