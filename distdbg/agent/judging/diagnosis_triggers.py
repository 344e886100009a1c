"""The ranks that are a reason to diagnose the job; a change triggers a new diagnosis. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from distdbg.agent.judging.stuck_thresholds import patient_state
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.join_calls import JoinCall
from distdbg.record.rank_state import RankState

Triggers = tuple[object, ...]
_STARTS_APART_NS: Final = 5 * 10**9
_INTERESTING: Final = (RankState.WAITING, RankState.FAILED, RankState.DEAD)


def find_triggers(watched_ranks: Iterable[WatchedRank], now_ns: int) -> Triggers:
    """The ranks that wait, are stuck or have failed, and since when; () if there are none."""
    found: list[tuple[int, int, RankState, int | str]] = []
    for watched in watched_ranks:
        state: RankState = patient_state(watched, now_ns)
        if (call := _late_call(watched, now_ns)) is not None:
            found.append((watched.rank, watched.pid, RankState.WAITING, call.since_ns))
        elif state is RankState.WAITING:
            if watched.is_exact:
                found.append((watched.rank, watched.pid, state, watched.progress_ns))
        elif state.is_stuck or state.is_over or state is RankState.LEFT:
            # The end of a short-lived rank may be known before its record is found, which says how it ended.
            found.append((watched.rank, watched.pid, state, int(watched.pulse is not None)))
        elif state is RankState.DEBUGGED:
            found.append((watched.rank, watched.pid, state, watched.since_ns))
        elif watched.site:  # looked at closely, while others wait
            found.append((watched.rank, watched.pid, state, watched.site))
    return tuple(found) if any(is_of_interest(one[2]) for one in found) else ()


def _late_call(watched: WatchedRank, now_ns: int) -> JoinCall | None:
    """Its call of init_process_group, where it has waited there for longer than ranks start apart."""
    call = watched.join if watched.is_joining else None
    return call if call is not None and now_ns - call.since_ns >= _STARTS_APART_NS else None


def find_prompts(watched_ranks: Iterable[WatchedRank]) -> Triggers:
    """The ranks in debuggers and since when: no reason to look, but others may wait for them elsewhere."""
    found = (watched for watched in watched_ranks if watched.state is RankState.DEBUGGED)
    return tuple((watched.rank, watched.pid, watched.state, watched.since_ns) for watched in found)


def has_ended_well(state: RankState) -> bool:
    """Whether a rank in this state is over and nothing is wrong with it."""
    return state in (RankState.ENDED, RankState.LEFT)


def is_of_interest(state: RankState) -> bool:
    """Whether a rank in this state is a reason to look."""
    return state in _INTERESTING or state.is_stuck
