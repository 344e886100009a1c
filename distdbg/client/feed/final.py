"""The end of a finished job, from its folder: how its ranks ended, and the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from distdbg.record.ends import RankEnd, read_ends
from distdbg.record.folders import VERDICT_NAME, attempts
from distdbg.record.rank_state import RankState
from distdbg.view.endings import shown_end
from distdbg.view.snapshot import RankRow

#: What the row of a rank says whose program has returned: `follow/roster.py`.
RETURNED: Final = "its program returned"
_MOST_NBYTES: Final = 16 << 20


def final_rows(
    rows: Mapping[int, RankRow], folder: Path | None, at: float
) -> Mapping[int, RankRow]:
    """The rows with how each rank ended; of which nobody tells when, that was seen at `at`.

    Without a folder it stays as it was seen last.
    """
    ends: dict[int, RankEnd] = {}
    for attempt in attempts(folder)[-1:] if folder is not None else ():
        ends |= {end.rank: end for end in read_ends(attempt)}
    changed = {}
    for rank, row in rows.items():
        end = ends.get(rank)
        if row.state.is_over:
            continue
        if end is None:
            if folder is not None:
                changed[rank] = replace(_untold(row), state_at=at)
            continue
        state, why = shown_end(end)
        changed[rank] = replace(
            row,
            state=state,
            state_at=end.wall_ns / 1e9,
            why=why,
            cpu=None,
            gpu=None,
        )
    return {**rows, **changed} if changed else rows


def _untold(row: RankRow) -> RankRow:
    """A rank that is gone, of which nobody wrote how: by what its record said last."""
    if row.state is RankState.LEFT or row.why == RETURNED:
        return replace(row, state=RankState.ENDED, op="", why="", cpu=None, gpu=None)
    if row.why.startswith("raised "):
        return replace(row, state=RankState.FAILED, cpu=None, gpu=None)
    why = "is gone; how it ended is unknown"
    return replace(row, state=RankState.DEAD, why=why, cpu=None, gpu=None)


def final_verdict(folder: Path | None) -> tuple[tuple[str, ...], Mapping[str, Any] | None]:
    """The words and the verdict that the agent has left; nothing when all was well."""
    for attempt in attempts(folder)[-1:] if folder is not None else ():
        try:
            with open(attempt / VERDICT_NAME, "rb") as file:
                found = json.loads(file.read(_MOST_NBYTES))
            root = found["verdict"]["root"]
            if root is None:
                return (), found
            finding = found["findings"][root]
            advice = str(finding["advice"])
            return (str(finding["what"]), *([advice] if advice else [])), found
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue
    return (), None
