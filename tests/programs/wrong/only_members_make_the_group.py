"""Only its members call new_group (without use_local_synchronization); rank 2 does not, so its
next group is another.
"""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "new_group",
    "odd": [2],
    "verdict": {"kind": "mismatch", "ranks": [2], "lines_of": [2]},
    "says": ["new_group", "0-1", "0-2"],
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    dist.barrier()
    if dist.get_rank() < 2:
        dist.new_group([0, 1])  # <- others
    everybody = dist.new_group([0, 1, 2])  # <- odd
    dist.all_reduce(np.ones(2), group=everybody)
    dist.destroy_process_group()


main()
