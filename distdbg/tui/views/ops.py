"""Ops: how many, how big, how long, and who is late; a row per kind and group."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from distdbg.diagnose.finding import FindingKind
from distdbg.record.rank_state import RankState
from distdbg.render.words import ranks_text
from distdbg.tui.cells import Cell, Tone, nbytes, one_line, rate, share, span
from distdbg.tui.table import TableColumn
from distdbg.tui.targets import KindTarget
from distdbg.tui.verdict import root_of
from distdbg.tui.view import TablePage, View
from distdbg.view.feed import Topic
from distdbg.view.snapshot import GroupRow, OpRow, RankRow, Snapshot

_MAX_LATE = 3
#: From here on a rank is late more often than chance makes it, and is worth a colour.
_OFTEN = 0.5


_OP: Final = re.compile(
    r"(?P<kind>[a-z_]+)[^#]* #(?P<seq>\d+) on group '(?P<group>.*?)'(?: \(.*)?$"
)


class OpsView(TablePage, View):
    """A row per kind of op and group."""

    key: ClassVar[str] = "o"
    title: ClassVar[str] = "ops"
    about: ClassVar[str] = "ops by kind and group: count, bytes, times, bandwidth, late ranks"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.OPS, Topic.GROUPS})
    columns: ClassVar[Sequence[TableColumn]] = (
        TableColumn(title="op", width=14),
        TableColumn(title="group", width=8),
        TableColumn(title="count", width=8, is_right=True),
        TableColumn(title="failed", width=6, is_right=True, from_width=90),
        TableColumn(title="bytes", width=9, is_right=True),
        TableColumn(title="p50", width=7, is_right=True),
        TableColumn(title="p99", width=7, is_right=True),
        TableColumn(title="wait p50", width=8, is_right=True, from_width=100),
        TableColumn(title="wait p99", width=8, is_right=True, from_width=110),
        TableColumn(title="bus bw", width=9, is_right=True, from_width=86),
        TableColumn(title="late ranks", width=15, grows=True),
    )

    def __init__(self) -> None:
        super().__init__()
        self._rows: Mapping[tuple[str, str], OpRow] = {}
        self._labels: Mapping[str, str] = {}
        self._missing: Mapping[tuple[str, str], tuple[int, ...]] = {}

    def draw(self, snapshot: Snapshot, now: float) -> None:
        if snapshot.ops is not self.snapshot.ops:
            self._rows = {(row.group, row.kind): row for row in snapshot.ops}
        if snapshot.groups is not self.snapshot.groups:
            self._labels = {row.name: row.label for row in snapshot.groups if row.label}
        old = self.snapshot
        new = (snapshot.ranks, snapshot.groups, snapshot.verdict)
        if any(a is not b for a, b in zip(new, (old.ranks, old.groups, old.verdict), strict=True)):
            self._missing = not_called(snapshot)
        said = [len(_not_called_by(found)) for found in self._missing.values()]
        self.table.fit_columns((), {len(self.columns) - 1: max(said)} if said else {})
        super().draw(snapshot, now)

    def keys(self) -> Sequence[Hashable]:
        return list(self._rows)

    def target(self) -> object:
        cursor = self.table.cursor
        row = self._rows.get(cursor) if isinstance(cursor, tuple) else None
        return KindTarget(row.group, row.kind) if row is not None else None

    def nothing(self) -> str:
        if self.snapshot.is_over:
            return "no ops are known of this job"
        return "no ops yet, or the agent of this job does not count them"

    def cells(self, key: Any) -> Sequence[Cell]:
        row = self._rows[key]
        missing = self._not_called(row)
        is_often = bool(row.late) and row.late[0][1] >= _OFTEN
        late = Cell(
            "  ".join(f"{rank} ({share(part)})" for rank, part in row.late[:_MAX_LATE]),
            Tone.WARN if is_often else Tone.MUTED,
        )
        if missing:  # what was late before is of no interest while others wait
            late = Cell(_not_called_by(missing), self._tone(missing))
        return (
            Cell(one_line(row.kind), late.tone if missing else Tone.PLAIN),
            Cell(one_line(self._labels.get(row.group, row.group)), Tone.MUTED),
            Cell(str(row.count)),
            Cell(str(row.failed) if row.failed else "", Tone.FAULT),
            Cell(nbytes(row.nbytes)),
            Cell(span(row.p50_s)),
            Cell(span(row.p99_s)),
            Cell(span(row.wait_p50_s), Tone.MUTED),
            Cell(span(row.wait_p99_s), Tone.MUTED),
            Cell(rate(row.bus_nbytes_per_s)),
            late,
        )

    def is_fault(self, key: Any) -> bool:
        row = self._rows[key]
        return bool(row.failed) or bool(self._not_called(row))

    def _not_called(self, row: OpRow) -> tuple[int, ...]:
        """The ranks that others wait for in such an op now."""
        names = {row.group, *(name for name, label in self._labels.items() if label == row.group)}
        return tuple(
            sorted({rank for name in names for rank in self._missing.get((name, row.kind), ())})
        )

    def _tone(self, ranks: Sequence[int]) -> Tone:
        return Tone.WARN if self.parts.causes.isdisjoint(ranks) else Tone.FAULT

    def sort_key(self, key: Any, at: int) -> Any:
        row = self._rows[key]
        match self.columns[at].title:
            case "count":
                return -row.count
            case "failed":
                return -row.failed
            case "bytes":
                return -row.nbytes
            case "p50":
                return -(row.p50_s or 0.0)
            case "p99":
                return -(row.p99_s or 0.0)
            case "wait p50":
                return -(row.wait_p50_s or 0.0)
            case "wait p99":
                return -(row.wait_p99_s or 0.0)
            case "bus bw":
                return row.bus_nbytes_per_s or 0.0
            case "late ranks":
                return -(2.0 if self._not_called(row) else row.late[0][1] if row.late else 0.0)
        return self.cells(key)[at].text


def _not_called_by(ranks: Sequence[int]) -> str:
    return f"not called by {ranks_text(ranks)}"


def not_called(snapshot: Snapshot) -> dict[tuple[str, str], tuple[int, ...]]:
    """The ranks that others wait for in an op now, by the group's name and the kind."""
    by_label: dict[str, list[GroupRow]] = {}
    for group in snapshot.groups:
        by_label.setdefault(group.label, []).append(group)
    found: dict[tuple[str, str], set[int]] = {}
    seen: set[tuple[str, str]] = set()
    for row in snapshot.ranks.values():
        if row.state is not RankState.WAITING or (match := _OP.match(row.op)) is None:
            continue
        for group in by_label.get(match["group"], ()):
            key = group.name, row.op
            if row.rank not in group.ranks or key in seen:
                continue
            seen.add(key)
            late = _behind(group, snapshot.ranks, int(match["seq"]))
            found.setdefault((group.name, match["kind"]), set()).update(late)
    for key, absent in _by_verdict(snapshot, by_label):
        found.setdefault(key, set()).update(absent)
    return {key: tuple(sorted(absent)) for key, absent in found.items() if absent}


def _by_verdict(
    snapshot: Snapshot, by_label: Mapping[str, list[GroupRow]]
) -> Iterator[tuple[tuple[str, str], tuple[int, ...]]]:
    """What a rank never called by the verdict, also when nobody waits for it any more."""
    root = root_of(snapshot.verdict) if snapshot.lines else None
    if root is None or root.kind is not FindingKind.MISSING_RANK:
        return
    for edge in root.edges:
        match = _OP.match(edge.text)
        for group in by_label.get(match["group"], ()) if match is not None else ():
            late = tuple(rank for rank in root.ranks if rank in group.ranks)
            if match is not None:
                yield (group.name, match["kind"]), late


def _behind(group: GroupRow, rows: Mapping[int, RankRow], seq: int) -> list[int]:
    """Members that have not called this collective; not those of which nothing is known."""
    late = []
    for rank in group.ranks:
        row = rows.get(rank)
        seqs = dict(row.seqs) if row is not None else {}
        called = group.issued.get(rank, seqs.get(group.label))
        if called is not None and called < seq and seqs.get(group.label, called) < seq:
            late.append(rank)
    return late
