"""Where a rank was that others waited for, as the agent of its host saw it last: one short phrase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from distdbg.errors import RecordError
from distdbg.record.sightings import Sighting, other_thread_of, phrase_of, read_sightings


def read_last_seen(folder: Path, pids: Mapping[int, int]) -> dict[int, str]:
    """By rank: 'asleep in load() at slp.py:7'. `pids` tells a start of the ranks from another."""
    try:
        return last_seen(read_sightings(folder), pids)
    except (OSError, RecordError):
        return {}


def last_seen(sightings: Iterable[Sighting], pids: Mapping[int, int]) -> dict[int, str]:
    """The last phrase of each rank. Pure."""
    found = {}
    for one in sightings:
        if pids.get(one.rank) == one.pid and (phrase := phrase_of(one)):
            found[one.rank] = phrase + other_thread_of(one)
    return found


def seen_now(sightings: Iterable[Sighting], rank: int, pid: int, moved_ns: int) -> Sighting | None:
    """What a rank has done since it moved last; None where nobody has seen that. Pure."""
    mine = [one for one in sightings if (one.rank, one.pid) == (rank, pid)]
    return mine[-1] if mine and mine[-1].since_ns >= moved_ns else None
