"""One rank closely: who it is, how far its groups have come, what it waits for, and its newest ops."""

from __future__ import annotations

from typing import Any, Final

from distdbg.follow.answers.clock import HostClock
from distdbg.follow.answers.one_op import plain_arrival
from distdbg.follow.answers.op_json import plain_group
from distdbg.follow.tail import TailedRecord
from distdbg.follow.watched_rank import WatchedRank, show_site
from distdbg.record.entries import OpEntry
from distdbg.view.rank_facts import level_name

MAX_HISTORY: Final = 200


def tell_history(
    record: TailedRecord, rank: int, clock: HostClock, *, most: int, before: int | None = None
) -> list[dict[str, Any]]:
    """The newest ops of a rank, the newest first, with what those that failed have said.

    `before`: older ones than this number. RecordError when the record was cut short.
    """
    last = record.pulse().last_number
    number = last if before is None else min(last, before - 1)
    found: list[dict[str, Any]] = []
    # Marks and findings are numbered as well, so a little more is looked at than is wanted.
    least = max(0, number - 2 * most)
    while number > least and len(found) < most:
        event = record.event(number)
        if isinstance(event, OpEntry):
            found.append(plain_arrival(rank, event, clock))
        number -= 1
    return found


def tell_rank(watched: WatchedRank, clock: HostClock) -> dict[str, Any]:
    """All that is known of one rank beside its row. RecordError when its record was cut short."""
    record = watched.record
    if record is None:
        return {"rank": watched.rank, "host": watched.host, "pid": watched.pid, "has_record": False}
    header, state = record.header, record.state()
    stat = watched.stat
    return {
        "rank": watched.rank,
        "host": watched.host,
        "pid": watched.pid,
        "has_record": True,
        "record": str(record.path),
        "argv": list(header.argv),
        "world_size": header.world_size,
        "began_ns": header.wall_ns,
        "distdbg_version": header.distdbg_version,
        "python_version": header.python_version,
        "level": level_name(state.level),
        "threads": stat.threads if stat is not None else None,
        "groups": [
            {
                **plain_group(group),
                "rank": group.rank,
                "issued_seq": far.issued_seq,
                "ended_seq": far.ended_seq,
                "is_closed": far.closed_ns is not None,
                "broken": far.broken,
            }
            for group, far in record.groups()
        ],
        "waits": [
            {
                "number": wait.number,
                "since_ns": clock.wall_ns(wait.since_ns),
                "thread": wait.thread,
                "site": show_site(wait.site) if wait.site else "",
                "stack": [str(frame) for frame in wait.stack],
            }
            for wait in state.work_waits
        ],
        "in_flight": [plain_arrival(watched.rank, op, clock) for op in record.in_flight()],
        "lost": {
            "strings": state.lost_strings,
            "sites": state.lost_sites,
            "parked": state.lost_parked,
            "waits": state.lost_waits,
            "counters": state.lost_counters,
        },
    }
