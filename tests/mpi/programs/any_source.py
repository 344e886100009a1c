"""Messages from any rank, many of them before they are asked for: `python any_source.py FOLDER`.

Each rank writes what it got.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import distdbg as dist

ROUNDS = 100


def collect(rank: int, size: int) -> list[list[int]]:
    """What rank 0 got from each, in order."""
    if rank:
        for number in range(ROUNDS):
            dist.send(np.full(3, number), 0, tag=5)
        return []
    found: list[list[int]] = [[] for _ in range(size)]
    for _ in range(ROUNDS * (size - 1)):
        x = np.zeros(3, np.int64)
        found[dist.recv(x, tag=5)].append(int(x[2]))
    return found


def large(rank: int) -> list[float]:
    """Too large to be sent before it is matched; and nobody waits for the receive."""
    if rank == 2:
        dist.send(np.full(1 << 20, 7.0), 0, tag=6)
    elif rank == 0:
        x = np.zeros(1 << 20)
        work = dist.irecv(x, tag=6)
        assert work is not None
        dist.barrier()
        work.wait()
        return [float(x[0]), float(x[-1])]
    if rank:
        dist.barrier()
    return []


def in_order(rank: int) -> list[Any]:
    """A receive from rank 1 behind one from any rank gets the second message."""
    if rank == 1:
        for number in range(3):
            dist.send(np.full(2, number), 0, tag=7)
    elif rank == 0:
        arrays = [np.zeros(2, np.int64) for _ in range(3)]
        works = [dist.irecv(x, src, tag=7) for x, src in zip(arrays, [None, 1, None], strict=True)]
        for work in reversed(works):
            assert work is not None
            work.wait()
        return [x.tolist() for x in arrays]
    return []


def main(folder: str) -> None:
    dist.init_process_group("mpi", timeout=timedelta(seconds=20))
    rank, size = dist.get_rank(), dist.get_world_size()
    found = {"collected": collect(rank, size), "large": large(rank), "in order": in_order(rank)}
    dist.barrier()
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
