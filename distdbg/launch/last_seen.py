"""Where a rank was that others waited for, as the agent of its host saw it last: one short phrase."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from distdbg.errors import RecordError
from distdbg.launch.root_cause import LossRole, RootCause
from distdbg.record.observations import Observation, others_of, phrase_of, read_sightings
from distdbg.record.rank_state import RankState


class LastSeen(NamedTuple):
    text: str
    """'asleep in load() at slp.py:7'."""
    state: RankState | None = None


def read_last_seen(
    folder: Path, pids: Mapping[int, int], until_ns: int | None = None
) -> dict[int, LastSeen]:
    """What each rank did last; `pids` tells a start of the ranks from another."""
    try:
        return last_seen(read_sightings(folder), pids, until_ns)
    except (OSError, RecordError):
        return {}


def last_seen(
    sightings: Iterable[Observation], pids: Mapping[int, int], until_ns: int | None = None
) -> dict[int, LastSeen]:
    """The last phrase of each rank; of one that moved on later, the last until that moment. Pure."""
    found: dict[int, LastSeen] = {}
    for one in sightings:
        if until_ns is not None and one.rank in found and one.since_ns > until_ns:
            continue
        if pids.get(one.rank) == one.pid and (phrase := phrase_of(one)):
            found[one.rank] = LastSeen(phrase + others_of(one), one.state)
    return found


def gave_up_ns(found: RootCause | None) -> int | None:
    """When a rank gave up waiting for another one, by the monotonic clock; None: that is not the cause.

    What the other one did since then is not what it was waited for.
    """
    if found is None or found.role is not LossRole.SUSPECT:
        return None
    return time.monotonic_ns() - (time.time_ns() - found.first[0].failed_wall_ns)


def seen_now(
    sightings: Iterable[Observation], rank: int, pid: int, progress_ns: int
) -> Observation | None:
    """What a rank has done since it moved last; None where nobody has seen that. Pure."""
    mine = [one for one in sightings if (one.rank, one.pid) == (rank, pid)]
    return mine[-1] if mine and mine[-1].since_ns >= progress_ns else None
