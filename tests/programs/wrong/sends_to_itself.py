"""A neighbour is computed wrongly: rank 0 sends to itself, and nobody is there to receive it."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": {0: "UsageError", 1: "*"},
    "torch": False,
    "verdict": {"kind": "dead rank", "ranks": [0]},
}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    message = np.ones(3)
    if rank == 0:
        dist.send(message, (rank + 2) % 2)
    else:
        dist.recv(message, 0)
    dist.destroy_process_group()


main()
