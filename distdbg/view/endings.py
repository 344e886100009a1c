"""How a rank ended, as its row says it: a state, and why."""

from __future__ import annotations

from distdbg.record.ends import RankEnd
from distdbg.record.rank_state import RankState


def raised(what: str, where: str = "") -> str:
    """'raised ValueError: no number, train.py:88 (step)'."""
    return f"raised {what}".rstrip() + (f", {where}" if where else "")


def shown_end(end: RankEnd, *, said: str = "", has_left: bool = False) -> tuple[RankState, str]:
    """The state of a rank whose process has ended, and the words for it; '' where all was well.

    `said`: what it raised (`raised`), by its record; `has_left`: its record says that it was done with
    its groups, which counts where nobody saw how the process ended.
    """
    if end.cause == "unknown" and has_left:
        return RankState.ENDED, end.how
    if not end.is_failure:
        return RankState.ENDED, ""
    if end.cause == "exited" or said:
        return RankState.FAILED, said or end.how
    return RankState.DEAD, end.how
