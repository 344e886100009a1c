"""Cuts what a rank did to a time: ops that were in flight in it, notes that came in it. Pure, by NumPy."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, Ops
from distdbg.record.entries import Event, SpanBegin, SpanEnd

if TYPE_CHECKING:
    from distdbg.diagnose.session import RankLog

_COLUMNS = tuple(name for name in Ops.__dataclass_fields__ if name != "errors")


def cut_to_window(log: RankLog, since_ns: int | None, until_ns: int | None) -> None:
    """Leave out of `log` what was over before `since_ns` or came after `until_ns`, on the run's clock."""
    low = NEVER if since_ns is None else since_ns - log.offset_ns
    high = 2**63 - 1 if until_ns is None else until_ns - log.offset_ns
    log.ops = _cut(log.ops, low, high)
    log.notes = _cut_notes(log.notes, low, high)
    log.found = tuple(one for one in log.found if one.at_ns == NEVER or low <= one.at_ns < high)


def _cut_notes(notes: Sequence[Event], low: int, high: int) -> tuple[Event, ...]:
    """The notes within a window; a span that reaches into it keeps both ends."""
    ends = {note.begin: note.issued_ns for note in notes if isinstance(note, SpanEnd)}
    begins = {
        note.number
        for note in notes
        if isinstance(note, SpanBegin)
        and note.issued_ns < high
        and ends.get(note.number, high) >= low
    }
    return tuple(
        note
        for note in notes
        if (
            note.number in begins
            if isinstance(note, SpanBegin)
            else note.begin in begins
            if isinstance(note, SpanEnd)
            else low <= note.issued_ns < high
        )
    )


def _cut(ops: Ops, low: int, high: int) -> Ops:
    import numpy as np

    issued = np.frombuffer(ops.issued_ns, np.int64)
    ended = np.frombuffer(ops.ended_ns, np.int64)
    in_flight = np.frombuffer(ops.status, np.uint8) == IN_FLIGHT
    # The end of some is damaged: when they began is all that is known.
    last = np.where(in_flight, 2**63 - 1, np.maximum(ended, issued))
    wanted = np.flatnonzero((last >= low) & (issued < high))
    if len(wanted) == len(ops):
        return ops
    columns = {}
    for name in _COLUMNS:
        column = getattr(ops, name)
        values = np.frombuffer(column, np.dtype(column.typecode))[wanted]
        columns[name] = array(column.typecode, values.tobytes())
    errors = {int(new): ops.errors[int(old)] for new, old in enumerate(wanted) if old in ops.errors}
    return Ops(**columns, errors=errors)
