"""The record of this rank: begun by init_process_group, ended with the process.

One run, one folder, one file per rank. A rank that cannot write there goes on without: its record is
then in memory, where its own messages still find what they need, and one warning says so.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.record.writing import make_recorder

if TYPE_CHECKING:
    from distdbg.runtime.world import World


def start_recording(world: World, rank: int, world_size: int, run: str) -> None:
    """Begin this rank's record of a run whose name all ranks know."""
    if os.environ.get("DISTDBG_UNWRAPPED") == "1":
        return
    folder = os.environ.get("DISTDBG_RUN_DIR")
    path = Path(folder) / f"rank{rank:05}.ddr" if folder else None
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        world.run_folder = path.parent
    world.recorder = make_recorder(path, rank=rank, world_size=world_size, run=run, ring_count=4096)


def new_run_name() -> str:
    """A name for a run, by rank 0."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + os.urandom(3).hex()
