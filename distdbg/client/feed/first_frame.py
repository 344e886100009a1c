"""When a dashboard begins to show a job: once all ranks of the host were read, or after a short while.

A job of which half of the ranks are known looks as if those that are known were late. What is missing after
the while is marked: the head says '3 of 4 ranks'. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from distdbg.record.rank_state import RankState
from distdbg.view.snapshot import RankRow

#: How long ranks that are missing are awaited after the first answer.
WAIT_S: Final = 1.5


class FirstFrame:
    """Whether the first frame may be drawn; then always."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._is_shown = False

    def may_show(self, rows: Collection[RankRow], world: int, now_s: float) -> bool:
        """`world`: how many ranks the job has, as far as that is known."""
        if self._since_s is None:
            self._since_s = now_s
        is_late = now_s - self._since_s >= WAIT_S
        self._is_shown = self._is_shown or is_late or is_whole(rows, world)
        return self._is_shown


def is_whole(rows: Collection[RankRow], world: int) -> bool:
    """Whether all ranks were read: none is missing, and all have a record, or none has one yet."""
    starting = sum(row.state is RankState.STARTING for row in rows)
    return bool(rows) and len(rows) >= world and starting in (0, len(rows))
