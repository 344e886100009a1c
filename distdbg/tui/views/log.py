"""Log: what the ranks printed, merged. It follows the end while the cursor is on the last line."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Final

from distdbg.errors import format_ranks
from distdbg.render.words import ranks_text
from distdbg.tui.cells import Cell, Filter, Tone, age, one_line
from distdbg.tui.table import TableColumn
from distdbg.tui.targets import TextTarget
from distdbg.tui.view import TablePage, View
from distdbg.view.feed import Topic
from distdbg.view.snapshot import LogRow, Snapshot

_MAX_RUNS: Final = 3
_LOOK_S: Final = 0.25


class LogView(TablePage, View):
    """A row per line that was printed. A row's key is its number since the view was opened."""

    key: ClassVar[str] = "l"
    title: ClassVar[str] = "log"
    about: ClassVar[str] = "what the ranks printed, merged; stays at the end unless scrolled"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.LOG})
    columns: ClassVar[Sequence[TableColumn]] = (
        TableColumn(title="ranks", width=7, is_right=True),
        TableColumn(title="", width=3),
        TableColumn(title="line", width=30, grows=True),
        TableColumn(title="ago", width=6, is_right=True, from_width=90),
    )

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[LogRow] = ()
        self._base = 0
        """The number of the first line that is there."""
        self._shown: list[int] = []
        self._seen: LogRow | None = None
        """The last line that was looked at."""
        self._reported: Sequence[LogRow] = ()
        """What the feed has given last."""
        self._why_none = ""
        self._filter: Filter | None = None
        self._only_err = False

    def on_mount(self) -> None:
        self.set_interval(_LOOK_S, self._look)

    def _look(self) -> None:
        """Lines come also while nothing else changes."""
        if self.top.trail[-1:] == [self] and self.feed.log() is not self._reported:
            self.redraw()

    @property
    def is_following(self) -> bool:
        """Whether the newest line is to be seen."""
        keys = self.table.keys
        return not keys or self.table.cursor == keys[-1]

    def draw(self, snapshot: Snapshot, now: float) -> None:
        follows = self.is_following
        lines = self._reported = self.feed.log()
        # A line of no rank is the feed's own: why there are none.
        self._why_none = one_line(lines[0].text) if len(lines) == 1 and not lines[0].ranks else ""
        self._read(() if self._why_none else lines)
        super().draw(snapshot, now)
        if follows:
            self.call_after_refresh(self._to_end)

    def _to_end(self) -> None:
        self.table.action_bottom()
        self.table.scroll_end(animate=False)

    def _read(self, lines: Sequence[LogRow]) -> None:
        """Number the lines that are new: those behind the last one that we have seen."""
        known = len(lines)
        while known and lines[known - 1] is not self._seen:
            known -= 1
        end = self._base + len(self._lines)
        if self._seen is not None and not known:
            self._shown.clear()  # none of them is there any more
        self._base = end - known
        self._lines = lines
        self._seen = lines[-1] if lines else None
        gone = next((i for i, key in enumerate(self._shown) if key >= self._base), None)
        self._shown = self._shown[gone:] if gone is not None else []
        self._shown += [end + i for i, row in enumerate(lines[known:]) if self._fits(row)]

    def _fits(self, row: LogRow) -> bool:
        if self._only_err and row.stream != "err":
            return False
        return self._filter is None or self._filter.fits(_cells(row, 0.0)[:3])

    def narrow(self, only: Filter | None, only_faults: bool) -> None:
        # The lines are many and do not change: each is looked at once, here.
        follows = self.is_following
        self._filter, self._only_err = only, only_faults
        self._shown = [self._base + i for i, row in enumerate(self._lines) if self._fits(row)]
        self.table.nothing = self.nothing()
        self.table.show(list(self._shown))
        if follows:
            self.call_after_refresh(self._to_end)

    def keys(self) -> Sequence[Hashable]:
        return list(self._shown)

    def nothing(self) -> str:
        if self._why_none:
            return self._why_none
        if self._lines:
            return f"no match for /{self._filter.text}" if self._filter else "no line of stderr"
        if self.snapshot.is_over:
            return "the job is over; its replay shows what it printed, where that was kept"
        return "no output is kept; `distdbg run --tee 3` or `--redirects 3` keeps it"

    def cells(self, key: Any) -> Sequence[Cell]:
        return _cells(self._lines[key - self._base], self.now)

    def sort_key(self, key: Any, at: int) -> Any:
        row = self._lines[key - self._base]
        return (row.ranks, row.stream, row.text, key)[at] if at < 3 else -key

    def target(self) -> object:
        cursor = self.table.cursor
        if not isinstance(cursor, int) or not 0 <= cursor - self._base < len(self._lines):
            return None
        row = self._lines[cursor - self._base]
        return TextTarget(f"line of {ranks_text(row.ranks)}", row.text, row.ranks)


def _cells(row: LogRow, now: float) -> tuple[Cell, Cell, Cell, Cell]:
    is_err = row.stream == "err"
    return (
        Cell(format_ranks(row.ranks, _MAX_RUNS), Tone.ACCENT),
        Cell("err" if is_err else "", Tone.WARN),
        Cell(one_line(row.text)),
        Cell(age(now - row.at) if row.at is not None else "", Tone.MUTED),
    )
