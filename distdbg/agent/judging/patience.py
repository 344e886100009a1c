"""From when on a rank that gets to no op counts as stuck: before that it may be at work. Pure.

    stopped, in a debugger                at once: nobody works so
    holds the GIL in a call that idles    at once
    holds the GIL and burns its core      after 10 s: pickling and sorting do so too
    loops                                 after 10 s: so do computations in Python
    blocked in I/O                        after 10 s: so are checkpoints
    sleeps                                after 30 s: so do waits for loaders, threads and programs

Who burns a core must have had it for 5 s: where ranks share cores, an honest second takes long.
While the clock of the job stands, for a pause or a debugger, nobody counts as stuck; when it runs on, all
have their time again. The state is shown as it is seen all the same; only no verdict stands on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from distdbg.agent.seat import Seat
from distdbg.record.rank_state import RankState

_S: Final = 1_000_000_000
WORKS_NS: Final = 10 * _S
WORKS_S: Final = 5.0
SLEEPS_NS: Final = 30 * _S
_PATIENCE_NS: Final[Mapping[RankState, int]] = {
    RankState.HOLDS_GIL: WORKS_NS,
    RankState.LOOPS: WORKS_NS,
    RankState.BLOCKED_IO: WORKS_NS,
    RankState.SLEEPS: SLEEPS_NS,
}


def patient_state(seat: Seat, now_ns: int) -> RankState:
    """Its state as far as a verdict may count on it: RUNNING while it may be at work."""
    if seat.is_resting and seat.state.is_stuck:
        return RankState.RUNNING
    if seat.state is RankState.HOLDS_GIL and not seat.is_busy:
        return seat.state
    if now_ns - max(seat.since_ns, seat.rested_ns) < _PATIENCE_NS.get(seat.state, 0):
        return RankState.RUNNING
    if seat.state in (RankState.HOLDS_GIL, RankState.LOOPS) and seat.stat is not None:
        burned_s = seat.stat.cpu_s - seat.cpu_since_s
        return seat.state if burned_s >= WORKS_S else RankState.RUNNING
    return seat.state
