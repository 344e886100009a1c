"""One group: each member's progress against the median."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import median_low
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from distdbg.errors import format_ranks
from distdbg.record.durations import duration_text
from distdbg.tui.cells import Cell, Tone, one_line
from distdbg.tui.table import TableColumn
from distdbg.tui.targets import OpTarget, RankTarget
from distdbg.tui.view import TablePage
from distdbg.view.feed import Topic
from distdbg.view.snapshot import GroupRow, OpKey, Snapshot


class GroupPage(TablePage):
    """A row per member."""

    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.GROUPS})
    columns: ClassVar[Sequence[TableColumn]] = (
        TableColumn(title="rank", width=4, is_right=True),
        TableColumn(title="issued", width=9, is_right=True),
        TableColumn(title="behind", width=7, is_right=True),
        TableColumn(title="ended", width=9, is_right=True),
        TableColumn(title="state", width=15),
        TableColumn(title="in", width=14, grows=True),
        TableColumn(title="at", width=14, grows=True, from_width=100),
        TableColumn(title="host", width=12, from_width=120),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "newest", "newest op", tooltip="its newest op, on all ranks")
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._of = name
        self._group: GroupRow | None = None
        self._median = 0

    @property
    def crumb(self) -> str:
        return f"group {one_line(self._group.label or self._of if self._group else self._of)}"

    def draw(self, snapshot: Snapshot, now: float) -> None:
        group = next((one for one in snapshot.groups if one.name == self._of), None)
        if group is not self._group:
            self._group = group
            issued = group.issued if group is not None else {}
            self._median = median_low(issued.values()) if issued else 0
        super().draw(snapshot, now)

    def keys(self) -> Sequence[Hashable]:
        return self._group.ranks if self._group is not None else ()

    def nothing(self) -> str:
        return f"group {one_line(self._of)} is not known any more"

    def target(self) -> object:
        cursor = self.table.cursor
        return RankTarget(cursor) if isinstance(cursor, int) else None

    def action_newest(self) -> None:
        issued: Mapping[int, int] = self._group.issued if self._group is not None else {}
        if not issued or not max(issued.values()):
            self.top.show_message("no collective was called on this group yet", "warning")
            return
        seq = max(issued.values())
        self.top.open_detail(OpTarget(OpKey(group=self._of, seq=seq), f"#{seq}"))

    def cells(self, key: Any) -> Sequence[Cell]:
        group, row = self._group, self.snapshot.ranks.get(key)
        assert group is not None
        seq = group.issued.get(key)
        ended = group.ended.get(key)
        off = seq - self._median if seq is not None else 0
        broken = group.broken.get(key, "")
        if broken:
            what = Cell(f"broken: {one_line(broken)}", Tone.FAULT)
        elif key in group.closed:
            what = Cell("destroyed the group", Tone.MUTED)
        elif row is None:
            what = Cell("no data", Tone.MUTED)
        else:
            what = Cell(one_line(row.op or row.why))
        return (
            Cell(str(key)),
            Cell(f"#{seq}" if seq is not None else ""),
            Cell(str(-off) if off < 0 else "", Tone.WARN),
            Cell(f"#{ended}" if ended is not None else "", Tone.MUTED),
            Cell(row.state if row else "", self.parts.tone(row) if row else Tone.PLAIN),
            what,
            Cell(one_line(row.site) if row else "", Tone.MUTED),
            Cell(one_line(row.host) if row else "", Tone.MUTED),
        )

    def is_fault(self, key: Any) -> bool:
        group, row = self._group, self.snapshot.ranks.get(key)
        if group is None:
            return False
        is_behind = group.issued.get(key, self._median) < self._median
        return is_behind or key in group.broken or (row is not None and self.parts.is_fault(row))

    def sort_key(self, key: Any, at: int) -> Any:
        group = self._group
        assert group is not None
        match at:
            case 0:
                return key
            case 1 | 2:
                return group.issued.get(key, -1)
            case 3:
                return group.ended.get(key, -1)
        return self.cells(key)[at].text

    def over(self) -> Content | None:
        group = self._group
        if group is None:
            return None
        size = len(group.ranks)
        parts = [f"{size} rank{'s' * (size != 1)}: {format_ranks(group.ranks)}"]
        if group.backend:
            parts.append(one_line(group.backend))
        if group.timeout_s is not None:
            parts.append(f"timeout {duration_text(group.timeout_s)}")
        text = Content("   ".join(parts))
        if group.issued:
            low, high = min(group.issued.values()), max(group.issued.values())
            words = (
                f"#{low} to #{high}, median #{self._median}" if low != high else f"all at #{low}"
            )
            text += f"\n{words}, {group.in_flight} in an op"
        return text
