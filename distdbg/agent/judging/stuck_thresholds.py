"""Decides from which age on a rank that reaches no op counts in a verdict. Pure.

The ages are those of `record.thresholds`. What the agent adds:

    holds the GIL in a call that idles    at once: nobody works so
    uses its CPU                          must have had it for `CPU_S`: where ranks share cores,
                                          an honest second takes long

While the clock of the job is held, for a pause or a debugger, no rank counts as stuck; when it runs on, all
have their time again. The state is shown as it is seen all the same; only no verdict rests on it.
"""

from __future__ import annotations

from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.observations import lock_holder_in
from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import CPU_S, limit_ns


def patient_state(watched: WatchedRank, now_ns: int) -> RankState:
    """Its state as far as a verdict may count on it: RUNNING while it may be at work."""
    if not watched.state.is_stuck:
        return watched.state
    if watched.is_resting:
        return RankState.RUNNING
    if lock_holder_in(watched.why) is not None:
        return watched.state  # it may be a deadlock, which has no age
    if watched.state is RankState.HOLDS_GIL and not watched.is_busy:
        return watched.state
    age_ns = now_ns - max(watched.since_ns, watched.rested_ns)
    if age_ns < limit_ns(watched.state, watched.longest_gap_ns):
        return RankState.RUNNING
    if watched.state in (RankState.HOLDS_GIL, RankState.BUSY) and watched.stat is not None:
        used_s = watched.stat.cpu_s - watched.cpu_since_s
        return watched.state if used_s >= CPU_S else RankState.RUNNING
    return watched.state
