"""Rank 0 sends rank 1 a row more than rank 1 expects."""

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "MismatchError",
    "op": "all_to_all",
    "says": ["all_to_all #1", "split sizes", "ranks 0-1"],
}


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        given, taken = [1, 3], [1, 2]
    else:
        given, taken = [2, 1], [2, 1]
    tokens = np.ones(sum(given), np.float32)
    received = np.zeros(sum(taken), np.float32)
    dist.all_to_all_single(received, tokens, taken, given)  # <- all
    dist.destroy_process_group()


main()
