"""A mixture of experts: tokens go to their expert, and some ranks have none for some expert."""

import numpy as np

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent"}

TOKENS = [[0, 3, 1], [2, 0, 0], [0, 0, 0]]  # TOKENS[source][expert]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    given = TOKENS[rank]
    taken = [row[rank] for row in TOKENS]
    tokens = np.full((sum(given), 2), float(rank), np.float32)
    received = np.full((sum(taken), 2), -1.0, np.float32)
    dist.all_to_all_single(received, tokens, taken, given)
    expected = [[float(peer)] * 2 for peer, count in enumerate(taken) for _ in range(count)]
    assert received.tolist() == expected
    dist.destroy_process_group()


main()
