"""A folder of dumps: one file per rank, as torch's flight recorder leaves them, for torch's own analyzer.

    torchfrtrace RUN.torch-fr
    python -m torch.distributed.flight_recorder.fr_trace RUN.torch-fr

Each rank is read twice: torch's analyzer is misled by ops of which only some sides are there, and which
those are is known when all ranks have been looked at (`sides.py`).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final

from distdbg.errors import RecordError, format_ranks
from distdbg.export.reading import OpenedRun, RunStart
from distdbg.export.torch_fr.batches import write_pickle
from distdbg.export.torch_fr.entries import Entries, unreadable
from distdbg.export.torch_fr.sides import FlightRecorderSides

#: As torch names its files where it is not told otherwise; its analyzer takes the rank from the end.
FILE_PREFIX: Final = "comm_lib_trace_rank_"
#: Of the layout of torch's dumps.
_VERSION: Final = "2.10"


def write(run: OpenedRun, folder: Path) -> None:
    """Write one file for each rank of the last start that has any."""
    starts = [start for start in run.starts if start.ranks]
    if not starts:
        raise RecordError(f"{run.source} holds no ranks", path=run.source)
    start = starts[-1]
    lacks = start.session.lacks
    if len(starts) > 1:
        lacks.append(
            f"a folder of dumps holds one start of a job: that is number {start.number}; "
            "--attempt N takes another"
        )
    sides = _look_at_all(start)
    left_out: Counter[str] = Counter()
    written = set()
    for log in start.read():
        entries = Entries(start.session, sides, log)
        with open(folder / f"{FILE_PREFIX}{log.rank}", "wb", opener=_open_private) as output:
            head = {
                "version": _VERSION,
                "comm_lib_version": "",
                "host": log.host,
                "pid": log.pid,
            }
            write_pickle(output, head, "entries", entries, entries.groups)
        left_out.update(entries.left_out)
        written.add(log.rank)
    lacks += [f"{count:,} left out: {why}" for why, count in left_out.items()]
    if missing := sorted(set(range(start.session.world_size)) - written):
        lacks.append(
            f"there is no dump of ranks {format_ranks(missing)}: "
            "torch's analyzer wants --allow-incomplete-ranks"
        )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _look_at_all(start: RunStart) -> FlightRecorderSides:
    sides = FlightRecorderSides(is_cut_short=start.window()[1] is not None)
    wanted = set(start.ranks)
    for log in start.read_all():
        # Of a rank that is not wanted all is known; of the others what will be written.
        before = log.ops
        if log.rank in wanted:
            start.choose(log)
        sides.add(log, unreadable(log), before)
    return sides
