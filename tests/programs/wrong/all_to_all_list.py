"""Rank 2 expects a longer block from rank 0 than rank 0 has for it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_to_all",
    "names": [0, 2],
    "says": ["all_to_all #1", "split sizes", "ranks 0,2"],
    "torch": False,
    "verdict": {"kind": "mismatch", "ranks": [0, 2]},
}


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    blocks = [np.ones(2, np.float32) for _ in range(size)]
    received = [np.zeros(2, np.float32) for _ in range(size)]
    if rank == 2:
        received[0] = np.zeros(3, np.float32)
    dist.all_to_all(received, blocks)  # <- all
    dist.destroy_process_group()


main()
