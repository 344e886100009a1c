"""A ring shifts its values, and each rank receives into the array that it still sends."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "silent",
    "odd": [0, 1, 2],
    "warns": ["recv on group 'world' shares memory with send on group 'world'"],
    "verdict": {"kind": "buffer race", "ranks": [0, 1, 2]},
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    values = np.full(4, rank, np.float32)
    out = dist.isend(values, (rank + 1) % size)  # <- also
    back = dist.irecv(values, (rank - 1) % size)  # <- all
    out.wait()
    back.wait()
    dist.destroy_process_group()


main()
