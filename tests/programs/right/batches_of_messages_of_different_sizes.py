"""Each rank sends the others what they need, nothing to some; the messages are posted in one
batch.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}

NEEDS = [[0, 2, 0], [1, 0, 3], [0, 0, 0]]  # NEEDS[source][target]


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    ops, incoming = [], {}
    for peer in range(size):
        if NEEDS[peer][rank]:
            incoming[peer] = np.zeros(NEEDS[peer][rank])
            ops.append(dist.P2POp(dist.irecv, incoming[peer], peer))
        if NEEDS[rank][peer]:
            ops.append(dist.P2POp(dist.isend, np.full(NEEDS[rank][peer], float(rank)), peer))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for peer, array in incoming.items():
        assert array.tolist() == [float(peer)] * NEEDS[peer][rank]
    dist.destroy_process_group()


main()
