"""A chain of overlapping pairs; each rank uses its two pairs in the order of the chain, so no two
ranks have the same program.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 4, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([left, left + 1]) for left in range(size - 1)]
    for step in range(5):
        halo = np.full(2, float(rank + step), np.float32)
        total = 0.0
        for left, pair in enumerate(pairs):
            if rank in (left, left + 1):
                edge = np.copy(halo)
                dist.all_reduce(edge, group=pair)
                total += float(edge[0])
        pairs_of_rank = [left for left in range(size - 1) if rank in (left, left + 1)]
        assert total == sum(2 * left + 1 + 2 * step for left in pairs_of_rank)
    dist.barrier()
    dist.destroy_process_group()


main()
