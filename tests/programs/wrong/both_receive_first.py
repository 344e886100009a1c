"""Two neighbours both receive before they send."""

from datetime import timedelta

import numpy as np

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "OpTimeout",
    "op": "recv",
    "missing": {0: [1], 1: [0]},
    "says": ["recv on group 'world'"],
    "verdict": {"kind": "deadlock", "ranks": [0, 1]},
}


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    other = 1 - dist.get_rank()
    border, halo = np.ones(3), np.zeros(3)
    dist.recv(halo, other)  # <- all
    dist.send(border, other)
    dist.destroy_process_group()


main()
