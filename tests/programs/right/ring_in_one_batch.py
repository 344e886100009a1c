"""Each rank sends to the right and receives from the left in one batch: everybody sends first,
nobody waits for it.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 4, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    block = np.full(3, float(rank), np.float32)
    for _ in range(size):
        incoming = np.zeros(3, np.float32)
        ops = [
            dist.P2POp(dist.isend, block, (rank + 1) % size),
            dist.P2POp(dist.irecv, incoming, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        block = incoming
    assert block.tolist() == [float(rank)] * 3
    dist.destroy_process_group()


main()
