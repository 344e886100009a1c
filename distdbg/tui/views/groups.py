"""Groups: their members, and how far apart these are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import median_low
from typing import Any, ClassVar

from distdbg.errors import format_ranks
from distdbg.record.durations import duration_text
from distdbg.tui.cells import Cell, Tone, one_line
from distdbg.tui.table import TableColumn
from distdbg.tui.targets import GroupTarget
from distdbg.tui.view import TablePage, View
from distdbg.view.feed import Topic
from distdbg.view.snapshot import GroupRow, Snapshot


class GroupsView(TablePage, View):
    key: ClassVar[str] = "g"
    title: ClassVar[str] = "groups"
    about: ClassVar[str] = "process groups: members, how far apart they are, who is in an op"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.GROUPS})
    columns: ClassVar[Sequence[TableColumn]] = (
        TableColumn(title="group", width=12, grows=True),
        TableColumn(title="size", width=5, is_right=True),
        TableColumn(title="ranks", width=12, grows=True),
        TableColumn(title="seq", width=9, is_right=True),
        TableColumn(title="spread", width=6, is_right=True),
        TableColumn(title="behind", width=12, grows=True),
        TableColumn(title="in op", width=6, is_right=True),
        TableColumn(title="state", width=9),
        TableColumn(title="backend", width=9, from_width=100),
        TableColumn(title="timeout", width=8, is_right=True, from_width=110),
    )

    def __init__(self) -> None:
        super().__init__()
        self._rows: Mapping[str, GroupRow] = {}
        self._medians: Mapping[str, int] = {}

    def draw(self, snapshot: Snapshot, now: float) -> None:
        if snapshot.groups is not self.snapshot.groups:
            self._rows = {row.name: row for row in snapshot.groups}
            self._medians = {
                row.name: median_low(row.issued.values()) for row in snapshot.groups if row.issued
            }
        super().draw(snapshot, now)

    def keys(self) -> Sequence[Hashable]:
        return list(self._rows)

    def target(self) -> object:
        cursor = self.table.cursor
        return GroupTarget(cursor) if isinstance(cursor, str) else None

    def nothing(self) -> str:
        if self.snapshot.is_over:
            return "no data about the groups of this job"
        return "no groups yet: they appear once the ranks have called init"

    def cells(self, key: Any) -> Sequence[Cell]:
        row = self._rows[key]
        median = self._medians.get(key)
        behind = self._behind(row)
        return (
            Cell(one_line(row.label or row.name)),
            Cell(str(len(row.ranks)) if row.ranks else "", Tone.MUTED),
            Cell(format_ranks(row.ranks), Tone.MUTED),
            Cell(f"#{median}" if median is not None else ""),
            Cell(str(row.spread) if row.spread else ""),
            Cell(format_ranks(behind), self._tone(behind)),
            Cell(str(row.in_flight) if row.in_flight else ""),
            self._state(row),
            Cell(one_line(row.backend), Tone.MUTED),
            Cell(
                f"{duration_text(row.timeout_s)}" if row.timeout_s is not None else "", Tone.MUTED
            ),
        )

    def is_fault(self, key: Any) -> bool:
        row = self._rows[key]
        return bool(row.broken or row.spread > 1) or not self._causes(row).isdisjoint(row.ranks)

    def sort_key(self, key: Any, at: int) -> Any:
        row = self._rows[key]
        match self.columns[at].title:
            case "size":
                return -len(row.ranks)
            case "ranks":
                return row.ranks
            case "seq":
                return -self._medians.get(key, 0)
            case "spread":
                return -row.spread
            case "behind":
                return -len(self._behind(row))
            case "in op":
                return -row.in_flight
            case "timeout":
                return row.timeout_s or 0.0
        return self.cells(key)[at].text

    def _causes(self, row: GroupRow) -> frozenset[int]:
        """The causes of what is wrong that are in this group and behind, or in an op that hangs."""
        return self.parts.causes if row.spread or row.in_flight else frozenset()

    def _tone(self, behind: Sequence[int]) -> Tone:
        return Tone.MUTED if self.parts.causes.isdisjoint(behind) else Tone.FAULT

    def _behind(self, row: GroupRow) -> list[int]:
        median = self._medians.get(row.name, 0)
        return [rank for rank, seq in row.issued.items() if seq < median]

    @staticmethod
    def _state(row: GroupRow) -> Cell:
        if row.broken:
            return Cell("broken", Tone.FAULT)
        if row.closed:
            return Cell("left" if len(row.closed) >= len(row.ranks) else "closing", Tone.MUTED)
        return Cell("")
