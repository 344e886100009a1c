"""Reads from the records of a host's ranks whether one of them ran out of batches before others did.

A few reads per record; the ranks are not asked. What proves it is in `batches.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from distdbg.errors import RecordError
from distdbg.record.batches import RanOut, find_ran_out, to_said
from distdbg.record.folders import record_name
from distdbg.record.format import NO_COLLECTIVE, EventType
from distdbg.record.passages import LoopTrack
from distdbg.record.reader import RecordFile

#: Records that are looked at; of larger groups the first.
_MAX_RANKS: Final = 64
#: How far back, in events of each record.
_MAX_EVENTS: Final = 1024


def look(folder: Path, group: str, ranks: Sequence[int]) -> RanOut | None:
    """Whether one of these ranks ran out of batches first, by their records and the calls on one group."""
    tracks = {}
    for rank in ranks[:_MAX_RANKS]:
        track = _read(folder / record_name(rank), group)
        if track is not None:
            tracks[rank] = track
    return find_ran_out(tracks)


def describe(found: RanOut) -> str:
    """'rank 2 ran out of batches at step 311; ranks 0-1 went on'."""
    return f"{found.head}{found.rest.replace(', ', '; ', 1) if not found.had else found.rest}"


def _read(path: Path, group: str) -> LoopTrack | None:
    try:
        with RecordFile(path, salvage=True) as record:
            return _track(record, group)
    except RecordError:
        return None


def _track(record: RecordFile, group: str) -> LoopTrack | None:
    number = next((each.number for each, _ in record.groups() if each.name == group), None)
    if number is None:
        return None
    after = max(0, record.pulse().last_number - _MAX_EVENTS)
    calls = [
        op
        for op in record.recent(after, _MAX_EVENTS)
        if op.group == number and not op.flags & NO_COLLECTIVE
    ]
    marks = to_said(record.notes(after, _MAX_EVENTS, EventType.MARK))
    return LoopTrack(marks, [op.seq for op in calls], [op.issued_ns for op in calls])
