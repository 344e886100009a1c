"""Snapshots as JSON and back, and what has changed from one to the next. Pure.

Ranks and groups are written by their keys, and of a changed rank only the changed fields. The rest
of a snapshot is written whole when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from distdbg.diagnose.verdict_document import read_verdict
from distdbg.record.rank_state import RankState
from distdbg.render.verdict_json import to_plain_verdict
from distdbg.view.snapshot import (
    ArmedBreakpoint,
    Bar,
    FeedLink,
    GroupRow,
    HostRow,
    LogRow,
    OpRow,
    RankRow,
    Snapshot,
    StoppedAtPrompt,
    WaitRow,
)

Plain = dict[str, Any]
Row = TypeVar("Row")

VERSION: Final = 1
#: Told whole.
_LISTS: Final[dict[str, type[Any]]] = {
    "hosts": HostRow, "ops": OpRow, "waits": WaitRow, "armed": ArmedBreakpoint, "stopped": StoppedAtPrompt,
}  # fmt: skip
_PLAIN: Final = (
    "run", "attempt", "link", "link_why", "began", "world_size", "lines", "is_paused", "paused_s",
    "held_by", "abort",
)  # fmt: skip
_RANK_FIELDS: Final = tuple(field.name for field in fields(RankRow))


def whole(snapshot: Snapshot) -> Plain:
    return changes(Snapshot(), snapshot, all_of_it=True)


def changes(before: Snapshot, after: Snapshot, *, all_of_it: bool = False) -> Plain:
    """What is another in `after`; {} for nothing. The moment itself is told by the line."""
    found: Plain = {}
    for name in _PLAIN:
        value = getattr(after, name)
        if all_of_it or value != getattr(before, name):
            found[name] = _plain(value)
    for name in _LISTS:
        rows = getattr(after, name)
        if all_of_it or (rows is not getattr(before, name) and rows != getattr(before, name)):
            found[name] = [_row(row) for row in rows]
    if all_of_it or after.verdict != before.verdict:
        verdict = after.verdict
        found["verdict"] = None if verdict is None else _plain(to_plain_verdict(verdict))
    ranks = _changed_ranks(before, after) if not all_of_it else _all_ranks(after)
    if ranks or all_of_it:
        found["ranks"] = ranks
    groups = _changed_groups(before, after)
    if groups or all_of_it:
        found["groups"] = groups
    return found


def _all_ranks(after: Snapshot) -> Plain:
    return {str(rank): _row(row) for rank, row in after.ranks.items()}


def _changed_ranks(before: Snapshot, after: Snapshot) -> Plain:
    if before.ranks is after.ranks:
        return {}
    found: Plain = {str(rank): None for rank in before.ranks if rank not in after.ranks}
    for rank, row in after.ranks.items():
        old = before.ranks.get(rank)
        if old is None:
            found[str(rank)] = _row(row)
        elif old is not row and old != row:
            found[str(rank)] = {
                name: _plain(getattr(row, name))
                for name in _RANK_FIELDS
                if getattr(row, name) != getattr(old, name)
            }
    return found


def _changed_groups(before: Snapshot, after: Snapshot) -> Plain:
    if before.groups is after.groups:
        return {}
    old = {group.name: group for group in before.groups}
    found: Plain = {
        group.name: _row(group)
        for group in after.groups
        if old.get(group.name) is not group and old.get(group.name) != group
    }
    names = {group.name for group in after.groups}
    return found | {name: None for name in old if name not in names}


def _row(row: Any) -> Plain:
    return {field.name: _plain(getattr(row, field.name)) for field in fields(row)}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return value


# ------------------------------------------------------------------------------- and back


def apply(snapshot: Snapshot, reported: Mapping[str, Any], at: float) -> Snapshot:
    """The snapshot with what has changed. ValueError, TypeError or KeyError for what is none."""
    found: Plain = {"at": at}
    for name in _PLAIN:
        if name in reported:
            value = reported[name]
            if name == "link":
                value = FeedLink(value)
            elif isinstance(value, list):
                value = tuple(map(str, value))
            found[name] = value
    for name, kind in _LISTS.items():
        if name in reported:
            found[name] = tuple(_read(kind, row) for row in reported[name])
    if "verdict" in reported:
        found["verdict"] = read_verdict(reported["verdict"])
    if "ranks" in reported:
        found["ranks"] = _ranks(snapshot.ranks, reported["ranks"])
    if "groups" in reported:
        groups = {group.name: group for group in snapshot.groups}
        for name, row in reported["groups"].items():
            if row is None:
                groups.pop(name, None)
            else:
                groups[name] = _read(GroupRow, row)
        found["groups"] = tuple(groups.values())
    return replace(snapshot, **found)


def _ranks(before: Mapping[int, RankRow], reported: Mapping[str, Any]) -> dict[int, RankRow]:
    rows = dict(before)
    for key, values in reported.items():
        rank = int(key)
        if values is None:
            rows.pop(rank, None)
        else:
            old = rows.get(rank, RankRow(rank=rank))
            rows[rank] = replace(old, **_converted(RankRow, values))
    return rows


def _read(kind: Callable[..., Row], values: Mapping[str, Any]) -> Row:
    return kind(**_converted(kind, values))


def _converted(kind: Any, values: Mapping[str, Any]) -> Plain:
    """Known fields alone, lists as tuples, keys that are ranks as numbers."""
    known = {field.name for field in fields(kind)}
    found: Plain = {}
    for name, value in values.items():
        if name not in known:
            continue
        if name == "state":
            found[name] = RankState(value)
        elif isinstance(value, list):
            found[name] = tuple(tuple(one) if isinstance(one, list) else one for one in value)
        elif isinstance(value, dict):
            found[name] = {int(key): one for key, one in value.items()}
        else:
            found[name] = value
    return found


# ------------------------------------------------------------------------------- lines and bars


def log_line(row: LogRow) -> list[Any]:
    return [row.at, list(row.ranks), row.stream, row.text]


def read_log_line(reported: Sequence[Any]) -> LogRow:
    at, ranks, stream, text = reported
    return LogRow(
        at=None if at is None else float(at),
        ranks=tuple(map(int, ranks)),
        stream=str(stream),
        text=str(text),
    )


def bar_line(bar: Bar) -> list[Any]:
    times = (bar.issued, bar.started, bar.ended)
    return [
        bar.number, bar.kind, bar.name, bar.group, bar.seq,
        *(None if one is None else round(one, 7) for one in times), bar.has_failed,
    ]  # fmt: skip


def read_bar_line(reported: Sequence[Any]) -> Bar:
    number, kind, name, group, seq, issued, started, ended, has_failed = reported
    return Bar(
        number=int(number),
        kind=str(kind),
        name=str(name),
        group=str(group),
        seq=int(seq),
        issued=float(issued),
        started=None if started is None else float(started),
        ended=None if ended is None else float(ended),
        has_failed=bool(has_failed),
    )
