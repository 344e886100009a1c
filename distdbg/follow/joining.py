"""Ranks that wait in init_process_group: they have no record, and a note of their call says so.

note_joins(folder, watched_ranks, now_ns)      who called it, and for whom each of them waits
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.join_calls import JoinCall, read_join_calls
from distdbg.record.join_waits import find_join_wait
from distdbg.record.observations import Observation, phrase_of


def note_joins(folder: Path, watched_ranks: Mapping[int, WatchedRank], now_ns: int) -> set[int]:
    """Read the notes of this host, if a rank has no record; returns the ranks of which there is news."""
    if all(watched.record is not None for watched in watched_ranks.values()):
        return set()
    known = read_join_calls(folder)
    calls = {
        rank: call
        for rank, watched in watched_ranks.items()
        if watched.record is None and (call := known.get((watched.host, watched.pid))) is not None
    }
    news = {rank for rank, watched in watched_ranks.items() if watched.join != calls.get(rank)}
    for rank, watched in watched_ranks.items():
        watched.join = calls.get(rank)
    _say_for_whom(watched_ranks, calls, now_ns)
    return news


def _say_for_whom(
    watched_ranks: Mapping[int, WatchedRank], calls: Mapping[int, JoinCall], now_ns: int
) -> None:
    """Note for whom ranks wait there, as far as this host knows: ranks of other hosts may be late as well."""
    found = find_join_wait(
        calls,
        {
            rank: watched.end.how
            for rank, watched in watched_ranks.items()
            if watched.end is not None
        },
        {rank: _doing(watched) for rank, watched in watched_ranks.items() if watched.end is None},
        now_ns,
    )
    for rank, watched in watched_ranks.items():
        is_waiting = found is not None and rank in found.waiting
        watched.join_why = found.why.strip(" ;") if found is not None and is_waiting else ""


def _doing(watched: WatchedRank) -> str:
    """'asleep in load() at slp.py:7'; '' where nobody has looked closely."""
    if watched.starts_in is None:
        return ""
    return phrase_of(
        Observation(
            rank=watched.rank,
            pid=watched.pid,
            host=watched.host,
            state=watched.starts_in,
            since_ns=watched.since_ns,
            why=watched.why,
            site=watched.site,
        )
    )
