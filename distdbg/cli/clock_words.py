"""Why the clock of a job stands, in words: who paused it, which ranks sit in a debugger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.errors import format_ranks
from distdbg.record.rank_state import RankState


def is_paused(control: dict[str, Any]) -> bool:
    """Whether the user paused it; agents of earlier versions know of no other reason."""
    holds = control.get("holds")
    if holds is None:
        return bool(control.get("is_paused"))
    return any(hold.get("kind") == "user" for hold in holds)


def who_holds(control: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """The holders of the clock beside the user: 'rank 3, in the debugger at train.py:88 (step)'; ''."""
    known = {row["rank"]: row for row in rows if row["state"] == RankState.DEBUGGED}
    holds = control.get("holds") or ()
    ranks = {hold["rank"] for hold in holds if hold.get("kind") == "rank"}
    ranks |= known.keys() if holds else set()
    if not ranks:
        return "a rank of another host" if any(h["kind"] == "another host" for h in holds) else ""
    if len(ranks) > 1:
        return f"ranks {format_ranks(sorted(ranks))}, in the debugger"
    [rank] = ranks
    site = known[rank]["site"] if rank in known else ""
    return f"rank {rank}, in the debugger" + (f" at {site}" if site else "")
