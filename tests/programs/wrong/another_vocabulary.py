"""Rank 1 was started with an older tokenizer: its embedding has fewer rows than the one it
receives.
"""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "broadcast",
    "odd": [1],
    "says": ["broadcast #1", "float32[32,4]", "float32[30,4]"],
}


def main():
    dist.init_process_group("gloo")
    vocabulary = 30 if dist.get_rank() == 1 else 32
    embedding = np.ones((vocabulary, 4), np.float32)
    dist.broadcast(embedding, src=0)  # <- all
    dist.destroy_process_group()


main()
