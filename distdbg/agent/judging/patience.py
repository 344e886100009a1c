"""From when on a rank that gets to no op counts as stuck: before that it may be at work. Pure.

    stopped, in a debugger                at once: nobody works so
    holds the GIL in a call that idles    at once
    holds the GIL and burns its core      after 10 s: pickling, sorting, collecting garbage do so too
    loops, blocked in I/O                 after 10 s: so do computations in Python, and checkpoints
    sleeps                                after 30 s: so do waits for loaders, threads and programs

Its state is shown as it is seen all the same; only no verdict stands on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from distdbg.agent.seat import Seat
from distdbg.record.rank_state import RankState

_S: Final = 1_000_000_000
WORKS_NS: Final = 10 * _S
SLEEPS_NS: Final = 30 * _S
_PATIENCE_NS: Final[Mapping[RankState, int]] = {
    RankState.HOLDS_GIL: WORKS_NS,
    RankState.LOOPS: WORKS_NS,
    RankState.BLOCKED_IO: WORKS_NS,
    RankState.SLEEPS: SLEEPS_NS,
}


def patient_state(seat: Seat, now_ns: int) -> RankState:
    """Its state as far as a verdict may count on it: RUNNING while it may be at work."""
    if seat.state is RankState.HOLDS_GIL and not seat.is_busy:
        return seat.state
    if now_ns - seat.since_ns < _PATIENCE_NS.get(seat.state, 0):
        return RankState.RUNNING
    return seat.state
