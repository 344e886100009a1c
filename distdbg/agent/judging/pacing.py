"""Decides when the job is diagnosed again: the more it costs, the less often. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from distdbg.agent.judging.diagnosis_events import ClockHold

if TYPE_CHECKING:
    from distdbg.agent.judging.reports import ReportedRoot

_S: Final = 1_000_000_000
#: Between two looks, however much changes: a look costs some milliseconds.
_LEAST_PAUSE_NS: Final = 100_000_000
_MOST_PAUSE_NS: Final = 2 * _S
#: Of what a look has cost, so much time passes until the next.
_PAUSE_PER_COST: Final = 50
#: A verdict that stands is judged again when so much of its age has passed, and not more often than this:
#: then no time in its words is off by more.
_AGED_SHARE: Final = 8
_AGED_NS: Final = _S
#: Of what that costs, so much time passes until the next.
_AGED_PER_COST: Final = 500
#: The proof that ends a job also while somebody has paused it: who is gone comes back for nobody.
_DEAD: Final = "dead"


def pause_ns(cost_ns: int) -> int:
    """Until the next look at what has changed, after one that cost so much."""
    return min(max(_LEAST_PAUSE_NS, _PAUSE_PER_COST * cost_ns), _MOST_PAUSE_NS)


def fresh_ns(lasts_ns: int, cost_ns: int) -> int:
    """How long the words of a verdict that has stood for `lasts_ns` are good, though nothing changes."""
    return max(_AGED_NS, lasts_ns // _AGED_SHARE, cost_ns * _AGED_PER_COST)


def is_held_back(case: ReportedRoot, hold: ClockHold) -> bool:
    """Whether a proof does not end the job yet: somebody is at the prompt of a rank, or has paused it."""
    if case.proof == _DEAD:
        return hold is ClockHold.DEBUGGED
    return hold is not ClockHold.NOBODY
