"""Messages from any rank, all right: the sender is asked for, tags differ, or one depends on the other."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    part = np.zeros(2)
    if rank == 0:
        whose = [dist.recv(part)]
        whose.append(dist.recv(part))
        assert sorted(whose) == [1, 2]
        total = 0.0
        for _ in range(size - 1):
            dist.recv(part, tag=1)
            total += part[0]
        assert total == 3.0
        dist.recv(part, tag=2)
        assert part[0] == 1.0
        dist.send(part, 2, tag=3)
        dist.recv(part, tag=2)
        assert part[0] == 2.0
        dist.recv(part, tag=4)
        dist.barrier()
        dist.recv(part, tag=4)
        assert part[0] == 2.0
    else:
        part[:] = rank
        dist.send(part, 0)
        dist.send(part, 0, tag=1)
        if rank == 2:
            dist.recv(np.zeros(2), 0, tag=3)
        dist.send(part, 0, tag=2)
        if rank == 1:
            dist.send(part, 0, tag=4)
        dist.barrier()
        if rank == 2:
            dist.send(part, 0, tag=4)
    dist.destroy_process_group()


main()
