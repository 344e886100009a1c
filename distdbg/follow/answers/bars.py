"""The newest ops of each rank as columns, for a timeline: what is new since the last answer alone.

Each rank has a place in the answer's `next`, which is sent back as `since` and means nothing to others:
the number up to which it was told, and the numbers before it that had not ended then. Those are told
again until they have. Of more than `most` new ones only the newest are told, and `skipped` counts the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from distdbg.errors import UsageError
from distdbg.follow.answers.clock import HostClock
from distdbg.follow.answers.op_json import list_members
from distdbg.follow.tail import TailedRecord
from distdbg.record.entries import Group, label_of_kind
from distdbg.record.format import Flag
from distdbg.record.recent import RecentOp

MAX_BARS: Final = 4096
#: How many that have not ended are looked at again; a program has one or two.
_MAX_OPEN: Final = 64


@dataclass(slots=True)
class Place:
    """How far a client was told of one rank."""

    last: int = 0
    open: list[int] = field(default_factory=list)

    def plain(self) -> list[int]:
        return [self.last, *self.open]


def read_places(found: object) -> dict[int, Place]:
    """`since` of a request; UsageError for what no answer had as `next`."""
    if found is None:
        return {}
    places = {}
    if isinstance(found, dict):
        for rank, numbers in found.items():
            is_place = (
                isinstance(numbers, list)
                and 0 < len(numbers) <= _MAX_OPEN + 1
                and all(type(n) is int and 0 <= n < 2**63 for n in numbers)
            )
            if not is_place or not rank.isdecimal():
                break
            places[int(rank)] = Place(numbers[0], list(numbers[1:]))
        else:
            return places
    raise UsageError("bars: 'since' is what an earlier answer had as 'next'")


def tell_bars(
    records: Mapping[int, TailedRecord],
    clock: HostClock,
    places: Mapping[int, Place],
    *,
    since_ns: int = 0,
    most: int = 200,
) -> dict[str, Any]:
    """The columns of each rank that has news, and how to go on. RecordError: a record was cut short."""
    bars: dict[str, Any] = {}
    going: dict[str, list[int]] = {}
    for rank, record in records.items():
        place = places.get(rank, Place())
        ops, skipped = _new_ops(record, place, most)
        if since_ns:
            ops = [op for op in ops if (op.ended_ns or 2**63) + clock.base_ns >= since_ns]
        going[str(rank)] = place.plain()
        if ops or skipped:
            bars[str(rank)] = _columns(record, ops, clock) | {"skipped": skipped}
    return {"bars": bars, "next": going}


def _new_ops(record: TailedRecord, place: Place, most: int) -> tuple[list[RecentOp], int]:
    """What is new of one rank; `place` is moved on."""
    last = record.pulse().last_number
    if last < place.last:  # another process has taken the rank
        place.last, place.open = 0, []
    again = [op for number in place.open if (op := record.recent_one(number)) is not None]
    new = record.recent(place.last, most)
    skipped = 0
    if place.last:
        first = new[0].number if new else last + 1
        skipped = max(0, first - place.last - 1) if last - place.last > most else 0
    ops = again + new
    place.last = max([place.last, *(op.number for op in new)])
    place.open = [op.number for op in ops if op.ended_ns is None][-_MAX_OPEN:]
    # One that had not ended when it was told last has nothing new to say.
    return [
        op for op in again if op.ended_ns is not None or op.started_ns is not None
    ] + new, skipped


def _columns(record: TailedRecord, ops: Sequence[RecentOp], clock: HostClock) -> dict[str, Any]:
    """Times as nanoseconds after `at_ns`; -1: not yet."""
    at_ns = min((op.issued_ns for op in ops), default=0)
    used = sorted({op.group for op in ops})
    groups = {number: group for number in used if (group := record.group(number)) is not None}
    kinds = sorted({op.kind for op in ops})
    return {
        "at_ns": clock.wall_ns(at_ns),
        "groups": [groups[group].name if group in groups else "" for group in used],
        "kinds": [label_of_kind(kind) or f"kind {kind}" for kind in kinds],
        "number": [op.number for op in ops],
        "group": [used.index(op.group) for op in ops],
        "kind": [kinds.index(op.kind) for op in ops],
        "seq": [op.seq for op in ops],
        "peer": _peers(ops, groups),
        "flags": [op.flags for op in ops],
        "issued": [op.issued_ns - at_ns for op in ops],
        "started": [-1 if op.started_ns is None else op.started_ns - at_ns for op in ops],
        "ended": [-1 if op.ended_ns is None else op.ended_ns - at_ns for op in ops],
        "status": [-1 if op.status is None else op.status for op in ops],
    }


def _peers(ops: Sequence[RecentOp], groups: Mapping[int, Group]) -> list[int]:
    """The other rank of each message, as a rank of the job; -1: no message, or with any."""
    if not any(op.flags & Flag.MESSAGE for op in ops):
        return [-1] * len(ops)
    members: dict[int, list[int]] = {}
    found = []
    for op in ops:
        if op.group not in members:
            group = groups.get(op.group)
            members[op.group] = list_members(group) if group is not None else []
        known = members[op.group]
        is_known = op.flags & Flag.MESSAGE and 0 <= op.peer < len(known)
        found.append(known[op.peer] if is_known else -1)
    return found
