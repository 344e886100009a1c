"""Ranks: what each of them does, and for how long."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import median_low
from typing import Any, ClassVar, Final

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from distdbg.tui.cells import Cell, Tone, age, nbytes, one_line, share
from distdbg.tui.table import TableColumn
from distdbg.tui.targets import HostTarget, RankTarget
from distdbg.tui.view import TablePage, View
from distdbg.tui.views.host_rows import (
    HOST_COLUMNS,
    HostSum,
    host_cells,
    host_sort_key,
    sum_up,
)
from distdbg.view.snapshot import RankRow, Snapshot

#: With more ranks on several hosts there is a row per host, until `h` is pressed.
_MANY: Final = 256
_TWO_UNITS_S: Final = 59.5
_LONG_AGE: Final = len("59 min 59 s")
_SHORT_S: Final = 0.1
_SHORT_AGE: Final = len("40.9 ms")


class RanksView(TablePage, View):
    key: ClassVar[str] = "r"
    title: ClassVar[str] = "ranks"
    about: ClassVar[str] = "what each rank does, and for how long"
    columns: ClassVar[Sequence[TableColumn]] = (
        TableColumn(title="", width=1),
        TableColumn(title="rank", width=4, is_right=True),
        TableColumn(title="state", width=15),
        TableColumn(title="for", width=6, is_right=True),
        TableColumn(title="in", width=22, grows=True),
        TableColumn(title="at", width=14, grows=True),
        TableColumn(title="behind", width=9, is_right=True, from_width=90),
        TableColumn(title="progress", width=8, is_right=True, from_width=100),
        TableColumn(title="cpu", width=5, is_right=True, from_width=60),
        TableColumn(title="memory", width=9, is_right=True, from_width=76),
        TableColumn(title="gpu", width=5, is_right=True, from_width=140),
        TableColumn(title="gpu mem", width=9, is_right=True, from_width=140),
        TableColumn(title="host", width=12, from_width=120),
        TableColumn(title="pid", width=8, is_right=True, from_width=130),
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "hosts", "by host", tooltip="a row per host, or per rank")
    ]
    folds: ClassVar[bool] = True
    """Whether there may be a row per host."""

    def __init__(self) -> None:
        super().__init__()
        self._medians: Mapping[str, int] = {}
        self._hosts: Mapping[str, HostSum] = {}
        self._by_host: bool | None = None
        """None: as it is best for so many ranks."""
        self._is_folded = False

    def draw(self, snapshot: Snapshot, now: float) -> None:
        if snapshot.ranks is not self.snapshot.ranks:
            self._medians = medians(snapshot)
            self._fold(snapshot)
        self.now = now
        if not self._is_folded:
            self.table.fit_columns(*self._columns(snapshot))
        super().draw(snapshot, now)

    def _columns(self, snapshot: Snapshot) -> tuple[frozenset[int], dict[int, int]]:
        """Which columns no rank has anything in, and how wide the place of the cause is."""
        rows = snapshot.ranks.values()
        titles = [column.title for column in self.columns]
        hosts = {row.host for row in rows}
        empty = {
            "": not self.parts.causes,
            "cpu": all(row.cpu is None for row in rows),
            "memory": all(row.rss_nbytes is None for row in rows),
            "gpu": all(row.gpu is None for row in rows),
            "gpu mem": all(row.gpu_nbytes is None for row in rows),
            "behind": not any(map(self._behind, rows)),
            "host": hosts <= {""},
            "pid": not any(row.pid for row in rows),
        }
        hidden = frozenset(at for at, title in enumerate(titles) if empty.get(title, False))
        sites = [snapshot.ranks[r].site for r in self.parts.causes if r in snapshot.ranks]
        need = max((cell_len(one_line(site)) for site in sites), default=0)
        needs = {titles.index("at"): need} if need else {}
        # An age that is written with two units is longer, and so is '40.9 ms' of ranks that ended together.
        ages = [self.now - row.state_at for row in rows]
        if any(
            0 < each < _SHORT_S for each, row in zip(ages, rows, strict=True) if row.state.is_over
        ):
            needs[titles.index("for")] = _SHORT_AGE
        if any(each >= _TWO_UNITS_S for each in ages):
            needs[titles.index("for")] = _LONG_AGE
        if any(row.moved_at and self.now - row.moved_at >= _TWO_UNITS_S for row in rows):
            needs[titles.index("progress")] = _LONG_AGE
        return hidden, needs

    def _fold(self, snapshot: Snapshot) -> None:
        """Have rows of hosts where they are wanted."""
        wants = self._by_host
        if wants is None:
            wants = len(snapshot.ranks) > _MANY and _has_hosts(snapshot.ranks)
        wants = wants and self.folds
        self._hosts = sum_up(snapshot.ranks.values(), self._medians) if wants else {}
        if wants != self._is_folded:
            self._is_folded = wants
            self.table.sorted_by, self.table.is_inverted = None, False
            self.table.set_columns(HOST_COLUMNS if wants else self.columns)

    def action_hosts(self) -> None:
        self._by_host = not self._is_folded
        self._fold(self.snapshot)
        self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "hosts" or self.folds

    def keys(self) -> Sequence[Hashable]:
        return self._host_order() if self._is_folded else self.parts.first(self.snapshot.ranks)

    def _host_order(self) -> Sequence[Hashable]:
        """Hosts with a cause before the others."""
        causes = self.parts.causes
        first = [host for host, one in self._hosts.items() if not causes.isdisjoint(one.ranks)]
        return [*first, *(host for host in self._hosts if host not in first)]

    def target(self) -> object:
        cursor = self.table.cursor
        if isinstance(cursor, str):
            return HostTarget(cursor)
        return RankTarget(cursor) if isinstance(cursor, int) else None

    def cells(self, key: Any) -> Sequence[Cell]:
        if isinstance(key, str):
            return host_cells(self._hosts[key], self.now, self.parts)
        row = self.snapshot.ranks[key]
        parts = self.parts
        tone = parts.tone(row)
        is_cause = row.rank in parts.causes
        own = tone if parts.has(row.rank) else Tone.PLAIN
        return (
            parts.mark(row.rank),
            Cell(str(row.rank), own),
            Cell(row.state, tone),
            Cell(age(self.now - row.state_at), own),
            Cell(one_line(row.op or row.why), own if row.op else tone),
            Cell(one_line(row.site), Tone.FAULT if is_cause else Tone.MUTED),
            Cell(self._behind(row), Tone.FAULT if is_cause else Tone.MUTED),
            Cell(age(self.now - row.moved_at) if row.moved_at else ""),
            Cell(share(row.cpu)),
            Cell(nbytes(row.rss_nbytes)),
            Cell(share(row.gpu)),
            Cell(nbytes(row.gpu_nbytes)),
            Cell(row.host, Tone.MUTED),
            Cell(str(row.pid) if row.pid else "", Tone.MUTED),
        )

    def is_fault(self, key: Any) -> bool:
        if isinstance(key, str):
            one = self._hosts[key]
            return one.faults > 0 or any(map(self.parts.has, one.ranks))
        return self.parts.is_fault(self.snapshot.ranks[key])

    def sort_key(self, key: Any, at: int) -> Any:
        if isinstance(key, str):
            return host_sort_key(self._hosts[key], HOST_COLUMNS[at].title)
        row = self.snapshot.ranks[key]
        title = self.columns[at].title
        match title:
            case "rank":
                return row.rank
            case "for":
                return row.state_at
            case "progress":
                return row.moved_at
            case "cpu":
                return -(row.cpu or 0.0)
            case "memory":
                return -(row.rss_nbytes or 0)
            case "behind":
                return min((seq - self._medians[name] for name, seq in row.seqs), default=0)
            case "gpu":
                return -(row.gpu or 0.0)
            case "gpu mem":
                return -(row.gpu_nbytes or 0)
            case "pid":
                return row.pid
        return self.cells(key)[at].text

    def _behind(self, row: RankRow) -> str:
        """How many ops it is behind, on the group where that is most: '3 dp'; '' where it is not."""
        off = [(self._medians.get(name, seq) - seq, name) for name, seq in row.seqs]
        by, name = max(off, default=(0, ""))
        return f"{by} {one_line(name)}" if by > 0 else ""


def _has_hosts(ranks: Mapping[int, RankRow]) -> bool:
    """Whether they are on several."""
    first = next(iter(ranks.values())).host
    return any(row.host != first for row in ranks.values())


def medians(snapshot: Snapshot) -> dict[str, int]:
    """Per group, the collective that half of its ranks have issued."""
    seqs: dict[str, list[int]] = {}
    for row in snapshot.ranks.values():
        for name, seq in row.seqs:
            seqs.setdefault(name, []).append(seq)
    return {name: median_low(found) for name, found in seqs.items()}
