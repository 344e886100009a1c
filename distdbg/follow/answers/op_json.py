"""Ops and groups as plain values that JSON can hold, as the API gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distdbg.follow.watched_rank import name_op, ranks_of, show_site
from distdbg.record.entries import Group, OpEntry

if TYPE_CHECKING:
    from distdbg.follow.tail import TailedRecord


def plain_op(rank: int, op: OpEntry, now_ns: int) -> dict[str, Any]:
    form = op.form
    return {
        "rank": rank,
        "number": op.number,
        "op": name_op(op),
        "kind": op.kind_label,
        "name": op.name,
        "group": op.group.name if op.group else None,
        "seq": op.seq,
        "age_s": round(max(0, now_ns - op.issued_ns) / 1e9, 3),
        "have_all_come": op.started_ns is not None,
        "is_async": op.is_async,
        "is_message": op.is_message,
        "peer": op.peer,
        "tag": op.tag if op.is_message else None,
        "dtype": form.dtype if form else "",
        "nbytes": form.nbytes if form else 0,
        "thread": op.thread,
        "comm": op.comm,
        "site": show_site(op.site) if op.site else "",
        "stack": [str(frame) for frame in op.stack],
    }


def plain_ops(records: Iterable[tuple[int, TailedRecord]], now_ns: int) -> list[dict[str, Any]]:
    return [plain_op(rank, op, now_ns) for rank, record in records for op in record.in_flight()]


def plain_groups(records: Iterable[tuple[int, TailedRecord]]) -> list[dict[str, Any]]:
    """The groups that these ranks are in, and how far each rank has come there."""
    groups: dict[str, dict[str, Any]] = {}
    for rank, record in records:
        for group, far in record.groups():
            known = groups.setdefault(group.name, plain_group(group))
            known["progress"].append(
                {
                    "rank": rank,
                    "issued_seq": far.issued_seq,
                    "ended_seq": far.ended_seq,
                    "is_closed": far.closed_ns is not None,
                    "broken": far.broken,
                }
            )
    return list(groups.values())


def plain_group(group: Group) -> dict[str, Any]:
    """A group; `progress` is filled rank by rank."""
    return {
        "name": group.name,
        "desc": group.desc,
        "ranks": group.ranks,
        "size": group.size,
        "backend": group.backend,
        "timeout_s": group.timeout_ns / 1e9,
        "progress": [],
    }


def list_members(group: Group) -> list[int]:
    """The ranks of the job that are in a group, by their rank there; [] when the record does not tell."""
    return list(ranks_of(group.ranks))
