"""Each rank brings as many rows as it has: a list all_gather may be uneven, where all ranks know
the sizes.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = [2 * peer + 1 for peer in range(size)]
    mine = np.full((rows[rank], 3), float(rank), np.float32)
    everything = [np.zeros((count, 3), np.float32) for count in rows]
    dist.all_gather(everything, mine)
    assert [block.tolist() for block in everything] == [
        [[float(peer)] * 3] * count for peer, count in enumerate(rows)
    ]
    dist.destroy_process_group()


main()
