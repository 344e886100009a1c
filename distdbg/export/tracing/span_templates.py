"""Ops that differ in numbers and times alone: the spans of one are made by those of another.

To look an op up costs as much as all else that is done for it, and most ops of a program are like others.
"""

from __future__ import annotations

from typing import Final

from distdbg.export.otel.recorded_ops import OpFacts
from distdbg.export.tracing.row import Row
from distdbg.record.slices import ENDED_WELL, Slice

_MOST: Final = 256

#: What ops have in common: the words of their events that are equal, and the block around them.
Sort = tuple[bytes, str]


class Likes:
    """One op of each sort."""

    def __init__(self) -> None:
        self._known: dict[Sort, OpFacts] = {}

    def of(self, sort: Sort) -> OpFacts | None:
        return self._known.get(sort)

    def keep(self, sort: Sort, op: OpFacts) -> None:
        """An op that was looked up."""
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[sort] = op


def sort_of(row: Row, part: Slice | None, at: int) -> Sort | None:
    """Of an op that the head keeps and that ended well; None: it is none."""
    if (
        part is None
        or row.key is None
        or not row.key[0]
        or row.why != "head"
        or row.context is not None
        or part.outcomes[at] != ENDED_WELL
    ):
        return None
    return part.sort(at), row.region
