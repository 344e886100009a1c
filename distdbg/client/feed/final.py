"""The end of a finished job, from its folder: how its ranks ended, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from distdbg.diagnose.finding import Verdict
from distdbg.record.ends import RankEnd, read_ends
from distdbg.record.folders import attempts
from distdbg.record.rank_state import RankState
from distdbg.view.short_words import shown_end
from distdbg.view.snapshot import RankRow

#: What the row of a rank says whose program has returned: `follow/roster.py`.
RETURNED: Final = "its program returned"


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
                changed[rank] = replace(_unreported(row), state_at=at)
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


def _unreported(row: RankRow) -> RankRow:
    """A rank that is gone, of which nobody wrote how: by what its record said last."""
    if row.state is RankState.LEFT or row.why == RETURNED:
        return replace(row, state=RankState.ENDED, op="", why="", cpu=None, gpu=None)
    if row.why.startswith("raised "):
        return replace(row, state=RankState.FAILED, cpu=None, gpu=None)
    why = "is gone; how it ended is unknown"
    return replace(row, state=RankState.DEAD, why=why, cpu=None, gpu=None)


def final_verdict(folder: Path | None) -> Verdict | None:
    """What the agent has left; None when all was well."""
    # Here, for it loads what reads runs, and a dashboard may begin without that.
    from distdbg.diagnose.load.proof import load_verdict

    newest = attempts(folder)[-1:] if folder is not None else ()
    return next(map(load_verdict, newest), None)


def diagnosed(folder: Path | None) -> Verdict | None:
    """What `distdbg analyze` says of its records; None where these are not all on this host.

    The agent's last verdict is of the moment before: "rank 2 is asleep ...; ranks 0-1,3 wait for it", though
    the job was stopped since.
    """
    if folder is None:
        return None
    from distdbg.diagnose.load.run_folder import load_run
    from distdbg.diagnose.verdict import diagnose

    try:
        session = load_run(folder)
        if session.missing_ranks() or session.ranks_without_record():
            return None
        return diagnose(session)
    except Exception:  # noqa: BLE001  # the dashboard stays; the agent's words are there
        return None
