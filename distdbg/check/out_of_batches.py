"""Adds to an error that a rank ran out of batches, where the records of this host's ranks prove it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distdbg.check.explain import name_ranks
from distdbg.errors import DistError, JobAborted, MismatchError, OpTimeout
from distdbg.record.batches import RanOut, Track, find_ran_out, to_said
from distdbg.record.folders import record_name
from distdbg.record.format import EventType, Flag

if TYPE_CHECKING:
    from distdbg.runtime.group import ProcessGroup

#: Records that are looked at; of larger groups the first.
_MOST_RANKS: Final = 64
#: How far back, in events of each record.
_MOST_EVENTS: Final = 1024
HINT: Final = "give all ranks as many batches, or let those that have none left join: dist.Join"


def tell_out_of_batches(group: ProcessGroup, error: DistError) -> None:
    """Put it before the other details; nothing is known of ranks whose records are elsewhere."""
    folder = group.world.run_folder
    if folder is None or not isinstance(error, (MismatchError, OpTimeout, JobAborted)):
        return
    try:
        found = look(folder, group.group_name, group.ranks[:_MOST_RANKS])
    except Exception:  # noqa: BLE001 - a record that cannot be read must not hide the error
        return
    if found is not None:
        error.details.insert(0, say(found))
        error.hint = HINT


def say(found: RanOut) -> str:
    """'rank 2 ran out of batches at step 311; ranks 0-1 went on'."""
    others = f"; {name_ranks(found.others)} went on" if found.others else ""
    return f"{name_ranks(found.ranks)} ran out of batches at step {found.step}{others}"


def look(folder: Path, group: str, ranks: Sequence[int]) -> RanOut | None:
    """Whether one of these ranks ran out of batches first, by their records."""
    tracks = {}
    for rank in ranks:
        track = _read(folder / record_name(rank), group)
        if track is not None:
            tracks[rank] = track
    return find_ran_out(tracks)


def _read(path: Path, group: str) -> Track | None:
    reader = import_module("distdbg.record.reader")
    errors = import_module("distdbg.errors")
    try:
        with reader.RecordFile(path, salvage=True) as record:
            return _track(record, group)
    except errors.RecordError:
        return None


def _track(record: Any, group: str) -> Track | None:
    number = next((each.number for each, _ in record.groups() if each.name == group), None)
    if number is None:
        return None
    last = record.pulse().last_number
    after = max(0, last - _MOST_EVENTS)
    calls = [
        op
        for op in record.recent(after, _MOST_EVENTS)
        if op.group == number and not op.flags & (Flag.MESSAGE | Flag.ASIDE)
    ]
    marks = to_said(record.notes(after, _MOST_EVENTS, EventType.MARK))
    return Track(marks, [op.seq for op in calls], [op.issued_ns for op in calls])
