"""Waits: who waits for whom, as a drawn graph or as a list."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget

from distdbg.render.words import ranks_text
from distdbg.tui.cells import Cell, Filter, Tone, age, one_line
from distdbg.tui.sheet import Sheet
from distdbg.tui.table import TableColumn
from distdbg.tui.targets import RankTarget
from distdbg.tui.view import TablePage, View
from distdbg.tui.wait_graph import WaitBoxes, draw_waits, fold_waits
from distdbg.view.feed import Topic
from distdbg.view.snapshot import Snapshot, WaitRow


class WaitsView(TablePage, View):
    """The graph at first; `v` shows the list."""

    key: ClassVar[str] = "w"
    title: ClassVar[str] = "waits"
    about: ClassVar[str] = "who waits for whom, as a graph or a list; the cycle of a deadlock"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.WAITS})
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "other", "graph or list", tooltip="as a list, or as a graph")
    ]
    columns: ClassVar[Sequence[TableColumn]] = (
        TableColumn(title="rank", width=4, is_right=True),
        TableColumn(title="waits for", width=14, grows=True),
        TableColumn(title="since", width=10, is_right=True),
        TableColumn(title="in", width=20, grows=True),
        TableColumn(title="at", width=14, grows=True),
        TableColumn(title="", width=8),
    )

    def __init__(self) -> None:
        super().__init__()
        self.sheet = Sheet(wraps=False)
        self._is_list = False
        self._rows: Mapping[tuple[int, int], WaitRow] = {}
        self._graph: WaitBoxes | None = None

    def compose(self) -> ComposeResult:
        self.table.display = self._is_list
        self.sheet.display = not self._is_list
        yield self.sheet
        yield from super().compose()

    def action_other(self) -> None:
        self._is_list = not self._is_list
        self.table.display, self.sheet.display = self._is_list, not self._is_list
        self.first_focus().focus()
        self.redraw()

    def first_focus(self) -> Widget:
        return self.table if self._is_list else self.sheet

    def draw(self, snapshot: Snapshot, now: float) -> None:
        if snapshot.waits is not self.snapshot.waits or not self._rows:
            rows: dict[tuple[int, int], WaitRow] = {}
            counts: dict[int, int] = {}
            for row in snapshot.waits:
                counts[row.rank] = counts.get(row.rank, -1) + 1
                rows[row.rank, counts[row.rank]] = row
            self._rows, self._graph = rows, None
        if snapshot.ranks is not self.snapshot.ranks:
            self._graph = None
        self.snapshot, self.now = snapshot, now
        if self._is_list:
            super().draw(snapshot, now)
        else:
            self._draw_graph()

    def _draw_graph(self) -> None:
        if self._graph is None:
            table = self.table
            shown = [
                row
                for key, row in self._rows.items()
                if (not table.only_faults or self.is_fault(key))
                and (table.filter is None or table.filter.fits(self.cells(key)))
            ]
            self._graph = fold_waits(shown, self.snapshot.ranks, self.parts)
        why = self.nothing()
        if self._rows and not self._graph.nodes:
            only = self.table.filter
            why = f"no match for /{only.text}" if only else "no fault among the ranks that wait"
        self.sheet.show(draw_waits(self._graph, self.sheet.size.width, self.now), why)

    def narrow(self, only: Filter | None, only_faults: bool) -> None:
        self._graph = None
        super().narrow(only, only_faults)
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.redraw)

    def keys(self) -> Sequence[Hashable]:
        return list(self._rows)

    def target(self) -> object:
        if not self._is_list:
            return self.sheet.cursor
        cursor = self.table.cursor
        return RankTarget(cursor[0]) if isinstance(cursor, tuple) else None

    def nothing(self) -> str:
        return "no rank waits for another"

    def cells(self, key: Any) -> Sequence[Cell]:
        row = self._rows[key]
        on = ranks_text(row.on)
        return (
            Cell(str(row.rank), self._tone(row.rank)),
            Cell(f"any of {on}" if row.is_any and len(row.on) > 1 else on),
            Cell(age(self.now - row.since) if row.since is not None else ""),
            Cell(one_line(row.op)),
            Cell(one_line(row.site), Tone.MUTED),
            Cell("" if row.can_go_on else "deadlock", Tone.FAULT),
        )

    def _tone(self, rank: int) -> Tone:
        known = self.snapshot.ranks.get(rank)
        return self.parts.tone(known) if known is not None and self.parts.has(rank) else Tone.PLAIN

    def is_fault(self, key: Any) -> bool:
        row = self._rows[key]
        return not row.can_go_on or self.parts.has(row.rank)

    def sort_key(self, key: Any, at: int) -> Any:
        row = self._rows[key]
        match self.columns[at].title:
            case "rank":
                return row.rank
            case "waits for":
                return row.on
            case "since":
                return row.since if row.since is not None else self.now
        return self.cells(key)[at].text
