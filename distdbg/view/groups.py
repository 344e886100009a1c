"""Hosts as rows; and process groups: how far their members have come, by the records of some hosts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from distdbg.record.text import error_words
from distdbg.view.snapshot import GroupRow, HostRow

Value = TypeVar("Value", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A group, and how far those of its members have come of which one source knows; by rank."""

    name: str
    """Equal on all members."""
    label: str
    """What messages call it; '' where that is its name."""
    ranks: tuple[int, ...]
    backend: str
    timeout_s: float | None = None
    issued: Mapping[int, int]
    """The collective issued last; 0: none."""
    ended: Mapping[int, int]
    closed: Collection[int]
    """Those that have destroyed the group."""
    broken: Mapping[int, str]
    """Why they can use it no more, as their records have it."""


def group_rows(reports: Iterable[GroupReport]) -> tuple[GroupRow, ...]:
    """A row per name, in the order in which they are first reported; each host reports its own members."""
    by_name: dict[str, list[GroupReport]] = {}
    for one in reports:
        by_name.setdefault(one.name, []).append(one)
    return tuple(map(_group_row, by_name.values()))


def _group_row(parts: list[GroupReport]) -> GroupRow:
    group = parts[0]
    return GroupRow(
        name=group.name,
        label=group.label or group.name,
        ranks=group.ranks,
        backend=group.backend,
        timeout_s=group.timeout_s,
        issued=_joined([one.issued for one in parts]),
        ended=_joined([one.ended for one in parts]),
        closed=tuple(sorted(rank for one in parts for rank in one.closed)),
        broken={
            rank: error_words(why) for rank, why in _joined([one.broken for one in parts]).items()
        },
    )


def _joined(parts: list[Mapping[int, Value]]) -> Mapping[int, Value]:
    """Join parts in the order of ranks."""
    if len(parts) == 1:
        return parts[0]
    return dict(sorted((rank, value) for one in parts for rank, value in one.items()))


def host_rows(
    names: Iterable[str], *, lost: Collection[str] = (), left: Collection[str] = ()
) -> tuple[HostRow, ...]:
    """Each once, in the order in which they are told; records that do not name their host have none.

    `lost`: whose agents nobody hears; `left`: whose agents have ended in good order.
    """
    return tuple(
        HostRow(host=name, is_lost=name in lost, has_left=name in left)
        for name in dict.fromkeys(names)
        if name
    )
