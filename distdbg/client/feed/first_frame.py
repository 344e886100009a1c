"""When a dashboard begins to show a job: once all ranks of the host were read, or after a short while.

A job of which half of the ranks are known looks as if those that are known were late. What is missing after
the while is marked: the head says '3 of 4 ranks'. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from distdbg.record.rank_state import RankState
from distdbg.view.snapshot import RankRow

#: How long ranks that are missing are awaited after the first answer.
WAIT_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class FirstFrame:
    """Whether the first frame may be drawn; then always."""

    since_s: float | None = None
    is_shown: bool = False

    def after(self, rows: Collection[RankRow], world: int, now_s: float) -> FirstFrame:
        """With these ranks of a job of `world`, as far as that is known."""
        since_s = now_s if self.since_s is None else self.since_s
        is_late = now_s - since_s >= WAIT_S
        return FirstFrame(since_s, self.is_shown or is_late or is_whole(rows, world))


def is_whole(rows: Collection[RankRow], world: int) -> bool:
    """Whether all ranks were read: none is missing, and all have a record, or none has one yet."""
    starting = sum(row.state is RankState.STARTING for row in rows)
    return bool(rows) and len(rows) >= world and starting in (0, len(rows))
