"""The mismatch is in a group of ranks 1 to 3; its ranks are called by their numbers in the job."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 4,
    "outcome": {0: "silent", 1: "MismatchError", 2: "MismatchError", 3: "MismatchError"},
    "op": "all_reduce",
    "odd": [2],
    "says": ["all_reduce #1 on group 'experts'", "float32[2] on ranks 1,3", "float32[1] on rank 2"],
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    experts = dist.new_group([1, 2, 3], group_desc="experts")
    if rank == 0:
        dist.destroy_process_group()  # it serves the store, and stays until the others are done
        return
    if rank == 2:
        dist.all_reduce(np.ones(1, np.float32), group=experts)  # <- odd
    else:
        load = np.ones(2, np.float32)
        dist.all_reduce(load, group=experts)  # <- ranks 1-1, ranks 3-3


main()
