"""Ranks at the prompt of a debugger: others wait for them, and that time counts as nobody's delay.

A stop at a prompt is an op of its own, kept aside (`record.format.Aside.DEBUGGER`), named by why the rank
stopped; agents also see it from outside. While one is open the clock of the job is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.ops import NEVER, OpRef
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.wording import short_site, site_of
from distdbg.record.format import Aside, Flag
from distdbg.record.rank_state import RankState

_FOR_EVER: Final = 2**63 - 1
_DEBUGGER: Final = bytes((Aside.DEBUGGER,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The prompt at which a rank sits: where, and why."""

    why: str
    """'before all_reduce #42 on group 'dp''; '' when nobody said."""
    site: str
    since_ns: int
    """On the session's clock."""


def is_debugged(log: RankLog) -> bool:
    """Whether it sits at the prompt of a debugger, or sat there when it ended."""
    if log.activity is not None and log.activity.state is RankState.DEBUGGED:
        return True
    return prompt_op(log) is not None


def prompt_op(log: RankLog) -> int | None:
    """The stop that has not ended, of several the last."""
    ops = log.ops
    if _DEBUGGER not in ops.kind.tobytes():
        return None
    found = [at for at in ops.in_flight() if _is_stop(log, at)]
    return found[-1] if found else None


def prompt_of(session: Session, rank: int) -> Prompt | None:
    """None for a rank that is at none."""
    log = session.ranks.get(rank)
    if log is None:
        return None
    at = prompt_op(log)
    if at is not None:
        return Prompt(
            why=session.forms[log.ops.form[at]].name,
            site=site_of(session, OpRef(rank, at)),
            since_ns=session.time_ns(rank, log.ops.issued_ns[at]),
        )
    seen = log.activity
    if seen is None or seen.state is not RankState.DEBUGGED:
        return None
    return Prompt(
        why=seen.why, site=short_site(seen.site), since_ns=session.time_ns(rank, seen.since_ns)
    )


def held_spans(session: Session) -> list[tuple[int, int]]:
    """When any rank sat at a prompt: begin and end on the session's clock, in order, none overlapping."""
    spans = []
    for rank, log in session.ranks.items():
        kinds = log.ops.kind.tobytes()
        at = kinds.find(_DEBUGGER)
        while at >= 0:
            if _is_stop(log, at):
                begin = session.time_ns(rank, log.ops.issued_ns[at])
                spans.append((begin, max(begin, _end_ns(session, log, at))))
            at = kinds.find(_DEBUGGER, at + 1)
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _end_ns(session: Session, log: RankLog, at: int) -> int:
    ended_ns = log.ops.ended_ns[at]
    if ended_ns == NEVER and log.end is not None:
        ended_ns = log.end.ended_ns
    return _FOR_EVER if ended_ns == NEVER else session.time_ns(log.rank, ended_ns)


def _is_stop(log: RankLog, at: int) -> bool:
    return log.ops.kind[at] == Aside.DEBUGGER and bool(log.ops.flags[at] & Flag.ASIDE)
