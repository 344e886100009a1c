"""Two ranks follow one version of the script, two another: nobody is odd, both sides are named."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 4,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "says": ["all_reduce #1", "float32[8] on ranks 0-1", "float32[16] on ranks 2-3"],
}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() < 2:
        dist.all_reduce(np.ones(8, np.float32))  # <- ranks 0-1
    else:
        dist.all_reduce(np.ones(16, np.float32))  # <- ranks 2-3
    dist.destroy_process_group()


main()
