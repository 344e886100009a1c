"""A pipeline: the first stage only sends, the last only receives, the middle does both; message
counts differ.
"""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    outputs = []
    for microbatch in range(6):
        activation = np.full((2, 2), float(microbatch), np.float32)
        if rank > 0:
            dist.recv(activation, rank - 1)
        activation += 1.0
        if rank < size - 1:
            dist.send(activation, rank + 1)
        else:
            outputs.append(float(activation[0, 0]))
    if rank == size - 1:
        assert outputs == [float(microbatch + size) for microbatch in range(6)]
    dist.barrier()
    dist.destroy_process_group()


main()
