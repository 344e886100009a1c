"""A group per phase, made, used and destroyed, over and over."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for phase in range(8):
        members = [0, 1, 2] if phase % 2 else [phase % 3, (phase + 1) % 3]
        group = dist.new_group(sorted(members))
        if rank in members:
            total = np.ones(1, np.float32)
            dist.all_reduce(total, group=group)
            assert float(total[0]) == len(members)
            dist.destroy_process_group(group)
    dist.destroy_process_group()


main()
