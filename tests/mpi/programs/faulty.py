"""What ranks of mpiexec are told when something goes wrong: `python faulty.py WHAT FOLDER`.

Each writes the errors that it got. All of them then leave: that is the other half of the test.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import distdbg as dist
from distdbg.errors import DistError
from distdbg.runtime.backends.mpi import collectives


def caught(function: Callable[[], object]) -> list[Any]:
    began = time.monotonic()
    try:
        function()
    except DistError as error:
        return [type(error).__name__, error.what, time.monotonic() - began]
    return ["nothing", "", time.monotonic() - began]


def die(*arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def differ_at_info(rank: int) -> list[list[Any]]:
    def step() -> None:
        for _ in range(2):  # who had all that it needed is told at its next op
            dist.all_reduce(np.ones(3 if rank == 1 else 4))

    return [caught(step), caught(lambda: dist.all_reduce(np.ones(4)))]


def come_late(rank: int, folder: str) -> list[list[Any]]:
    if rank == 2:
        deadline = time.monotonic() + 30
        while not all(Path(folder, f"timed out {each}").exists() for each in (0, 1)):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # nothing announces a file
        return [caught(lambda: dist.all_reduce(np.ones(4)))]
    found = [caught(lambda: dist.all_reduce(np.ones(4), timeout=timedelta(seconds=0.5)))]
    Path(folder, f"timed out {rank}").touch()
    return found


def lose_one(rank: int) -> list[list[Any]]:
    """It agrees to the op, and dies before it has called MPI."""
    if rank == 1:
        collectives.start = die  # type: ignore[assignment]
    return [caught(lambda: dist.all_reduce(np.ones(4)))]


def main(what: str, folder: str) -> None:
    dist.init_process_group("mpi", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    dist.barrier()
    if what == "differ":
        found = differ_at_info(rank)
    elif what == "late":
        found = come_late(rank, folder)
    else:
        found = lose_one(rank)
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
