"""Process groups as rows: how far their members have come, by the records of one host or of all. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distdbg.record.text import error_words
from distdbg.view.snapshot import GroupRow


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProgress:
    """How far one member has come."""

    rank: int
    issued_seq: int
    """Of the collective issued last; 0: none."""
    ended_seq: int
    is_closed: bool = False
    """Whether it has destroyed the group."""
    broken: str | None = None
    """Why it can use the group no more, as its record has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A group, and those of its members of which one source knows."""

    name: str
    """Equal on all members."""
    label: str
    """What messages call it; '' where that is its name."""
    ranks: tuple[int, ...]
    backend: str
    timeout_s: float | None = None
    progress: tuple[MemberProgress, ...] = ()


def group_rows(reports: Iterable[GroupReport]) -> tuple[GroupRow, ...]:
    """A row per name, in the order in which they are first reported; each host reports its own members."""
    first: dict[str, GroupReport] = {}
    progress: dict[str, list[MemberProgress]] = {}
    for one in reports:
        first.setdefault(one.name, one)
        progress.setdefault(one.name, []).extend(one.progress)
    return tuple(_group_row(one, progress[name]) for name, one in first.items())


def _group_row(group: GroupReport, progress: list[MemberProgress]) -> GroupRow:
    members = sorted(progress, key=lambda far: far.rank)
    return GroupRow(
        name=group.name,
        label=group.label or group.name,
        ranks=group.ranks,
        backend=group.backend,
        timeout_s=group.timeout_s,
        issued={far.rank: far.issued_seq for far in members},
        ended={far.rank: far.ended_seq for far in members},
        closed=tuple(far.rank for far in members if far.is_closed),
        broken={far.rank: error_words(far.broken) for far in members if far.broken is not None},
    )
