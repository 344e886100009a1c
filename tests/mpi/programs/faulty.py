"""What ranks of mpiexec are told when something goes wrong: `python faulty.py FOLDER`.

Each writes the errors that it got: of a group that differed, of one with a late rank, and of all ranks, one
of which died. Then the others go on without it, and leave: that is the other half of the test.
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


def differ(rank: int) -> list[list[Any]]:
    """At INFO, where the op has begun when it is seen."""
    group = dist.new_group()

    def step() -> None:
        # Who had all that it needed goes on until the agreement has ended beside its ops; the first to hear
        # of it calls no more, so that no other can get through all rounds.
        for _ in range(1000):
            dist.all_reduce(np.ones(3 if rank == 1 else 4), group=group)

    return [caught(step), caught(lambda: dist.all_reduce(np.ones(4), group=group))]


def come_late(rank: int) -> list[Any]:
    group = dist.new_group()
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    if rank == 2:
        store.wait(["timed out 0", "timed out 1"], timedelta(seconds=30))
        return caught(lambda: dist.all_reduce(np.ones(4), group=group))
    limit = timedelta(seconds=0.5)
    found = caught(lambda: dist.all_reduce(np.ones(4), group=group, timeout=limit))
    store.set(f"timed out {rank}", "")
    return found


def lose_one(rank: int) -> list[Any]:
    """It agrees to the op, and dies before it has called MPI."""
    if rank == 1:
        collectives.start = die  # type: ignore[assignment]
    return caught(lambda: dist.all_reduce(np.ones(4)))


def main(folder: str) -> None:
    dist.init_process_group("mpi", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    dist.barrier()
    found = {"differ": differ(rank), "late": come_late(rank), "lost": lose_one(rank)}
    dist.shrink_group([1])
    x = np.ones(1)
    dist.all_reduce(x)
    found["goes on"] = [x[0], dist.get_world_size()]
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
