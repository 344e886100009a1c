"""Ranks that wait in init_process_group: they have no record, and a note of their call says so.

note_joins(folder, seats, now_ns)      who called it, and for whom each of them waits
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.join_calls import JoinCall, read_join_calls
from distdbg.record.join_waits import find_join_wait
from distdbg.record.observations import Observation, phrase_of


def note_joins(folder: Path, seats: Mapping[int, WatchedRank], now_ns: int) -> set[int]:
    """Read the notes of this host, if a rank has no record; returns the ranks of which there is news."""
    if all(seat.record is not None for seat in seats.values()):
        return set()
    known = read_join_calls(folder)
    calls = {
        rank: call
        for rank, seat in seats.items()
        if seat.record is None and (call := known.get((seat.host, seat.pid))) is not None
    }
    news = {rank for rank, seat in seats.items() if seat.join != calls.get(rank)}
    for rank, seat in seats.items():
        seat.join = calls.get(rank)
    _say_for_whom(seats, calls, now_ns)
    return news


def _say_for_whom(
    seats: Mapping[int, WatchedRank], calls: Mapping[int, JoinCall], now_ns: int
) -> None:
    """Of what this host knows: ranks of other hosts may be late as well."""
    found = find_join_wait(
        calls,
        {rank: seat.end.how for rank, seat in seats.items() if seat.end is not None},
        {rank: _doing(seat) for rank, seat in seats.items() if seat.end is None},
        now_ns,
    )
    for rank, seat in seats.items():
        is_waiting = found is not None and rank in found.waiting
        seat.join_why = found.why.strip(" ;") if found is not None and is_waiting else ""


def _doing(seat: WatchedRank) -> str:
    """'asleep in load() at slp.py:7'; '' where nobody has looked closely."""
    if seat.starts_in is None:
        return ""
    return phrase_of(
        Observation(
            rank=seat.rank,
            pid=seat.pid,
            host=seat.host,
            state=seat.starts_in,
            since_ns=seat.since_ns,
            why=seat.why,
            site=seat.site,
        )
    )
