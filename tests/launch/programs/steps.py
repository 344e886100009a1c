"""Ranks that reduce for a while, so that whatever happens to the job happens in the midst of it."""

from __future__ import annotations

import sys
import time

import numpy as np

import distdbg as dist


def main() -> None:
    dist.init_process_group()
    values = np.ones(1024)
    for _ in range(int(sys.argv[1])):
        dist.all_reduce(values)
        time.sleep(0.01)  # work
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
