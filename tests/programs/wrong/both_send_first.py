"""Two neighbours both send before they receive, and a send ends when it is received."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "OpTimeout",
    "op": "send",
    "missing": {0: [1], 1: [0]},
    "says": ["send on group 'world'"],
    "verdict": {"kind": "deadlock", "ranks": [0, 1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    other = 1 - dist.get_rank()
    border, halo = np.ones(1 << 20), np.zeros(1 << 20)
    dist.send(border, other)  # <- all
    dist.recv(halo, other)
    dist.destroy_process_group()


main()
