"""Rank 1 has forgotten to load the checkpoint: its replica is another one, which nothing notices
unless it is asked for.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "DivergedError",
    "odd": [1],
    "says": ["assert_same", "rank 1"],
    "torch": False,
}


def main():
    dist.init_process_group("gloo")
    weights = np.full(16, 0.0 if dist.get_rank() == 1 else 1.0, np.float32)
    dist.assert_same(weights)  # <- all
    dist.destroy_process_group()


main()
