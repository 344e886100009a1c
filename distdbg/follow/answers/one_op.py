"""One op on all ranks of this host: when each came, what it called, from where, how it ended.

The op is named by its group and seq, or by a rank of this host and the number that the op has in its
record. Where the other ranks have it is found backwards from the newest entry of their rings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distdbg.follow.answers.clock import HostClock
from distdbg.follow.answers.op_json import list_members
from distdbg.follow.tail import TailedRecord
from distdbg.follow.watched_rank import name_op, show_site
from distdbg.record.entries import KIND_LABELS, Group, OpEntry, ProgressEntry
from distdbg.record.form_text import show_form
from distdbg.record.format import Flag


def find_named(records: Mapping[int, TailedRecord], rank: int, number: int) -> OpEntry | None:
    """The op with this number in the record of `rank`; None: not there any more."""
    record = records.get(rank)
    found = record.event(number) if record is not None else None
    return found if isinstance(found, OpEntry) else None


def tell_op(
    records: Mapping[int, TailedRecord],
    clock: HostClock,
    group: str,
    seq: int,
    like: tuple[int, OpEntry] | None = None,
) -> dict[str, Any]:
    """The collective `seq` of a group, or the aside or message that a rank of this host calls `like`.

    RecordError when a record was cut short.
    """
    if like is not None and like[1].is_message:
        return _tell_message(records, clock, *like)
    is_aside = like is not None and like[1].is_aside
    flags = Flag.ASIDE if is_aside else 0
    kind = like[1].kind if like is not None and is_aside else None
    arrivals: list[dict[str, Any]] = []
    members: list[int] = []
    name = ""
    for rank, record in records.items():
        here = _group_of(record, group)
        if here is None:
            continue
        known, far = here
        members = members or list_members(known)
        number = record.find_op(known.number, seq, flags=flags, kind=kind)
        op = record.event(number) if number is not None else None
        if isinstance(op, OpEntry):
            name = name or name_op(op)
            arrivals.append(plain_arrival(rank, op, clock))
        else:
            # What it has issued later it must have called: its record has no room for it any more.
            is_past = not is_aside and far.issued_seq >= seq
            arrivals.append({"rank": rank, "has_come": is_past, "is_overwritten": is_past})
    return {"op": name, "group": group, "seq": seq, "ranks": members, "arrivals": arrivals}


def _tell_message(
    records: Mapping[int, TailedRecord], clock: HostClock, rank: int, op: OpEntry
) -> dict[str, Any]:
    """A message: whoever sends and whoever receives it, as far as they are on this host."""
    assert op.group is not None  # it was found by it
    arrivals = [plain_arrival(rank, op, clock)]
    members = list_members(op.group)
    ranks = [rank]
    if op.peer is not None and op.peer < len(members):
        peer = members[op.peer]
        ranks.append(peer)
        other = _other_side(records.get(peer), op)
        if other is not None:
            arrivals.append(plain_arrival(peer, other, clock))
        elif peer in records:
            arrivals.append({"rank": peer, "has_come": False, "is_overwritten": False})
    reported = {"op": name_op(op), "group": op.group.name, "seq": op.seq}
    return {**reported, "ranks": ranks, "arrivals": arrivals}


def _other_side(record: TailedRecord | None, op: OpEntry) -> OpEntry | None:
    here = _group_of(record, op.group.name) if record is not None and op.group else None
    if record is None or here is None or op.group is None:
        return None
    kinds = ("send", "recv")
    if op.kind_label not in kinds:
        return None
    wanted = KIND_LABELS.index(kinds[op.kind_label == "send"])
    number = record.find_op(
        here[0].number, op.seq, flags=Flag.MESSAGE, kind=wanted, peer=op.group.rank
    )
    found = record.event(number) if number is not None else None
    return found if isinstance(found, OpEntry) else None


def _group_of(record: TailedRecord, name: str) -> tuple[Group, ProgressEntry] | None:
    return next((pair for pair in record.groups() if pair[0].name == name), None)


def plain_arrival(rank: int, op: OpEntry, clock: HostClock) -> dict[str, Any]:
    return {
        "rank": rank,
        "has_come": True,
        "is_overwritten": False,
        "number": op.number,
        "op": name_op(op),
        "issued_ns": clock.wall_ns(op.issued_ns),
        "started_ns": None if op.started_ns is None else clock.wall_ns(op.started_ns),
        "ended_ns": None if op.ended_ns is None else clock.wall_ns(op.ended_ns),
        "status": op.status_label,
        "kind": op.kind_label,
        "name": op.name,
        "group": op.group.name if op.group else "",
        "seq": op.seq,
        "peer": op.peer,
        "tag": op.tag if op.is_message else None,
        "is_async": op.is_async,
        "is_message": op.is_message,
        "form": show_form(op.form) if op.form else "",
        "nbytes": op.form.nbytes if op.form else 0,
        "comm": op.comm,
        "site": show_site(op.site) if op.site else "",
        "stack": [str(frame) for frame in op.stack],
        "error": op.error,
    }
