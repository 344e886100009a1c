"""RowTable: a table of any number of rows, of which only those in sight are made and drawn.

textual's DataTable keeps every cell as an object and lays them all out anew when one grows; four thousand
ranks four times a second are beyond it. Here a view names its rows by keys, and makes the cells of a row
when that row is drawn, filtered or sorted by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from distdbg.tui.cells import Cell, Tone, shorten
from distdbg.tui.cursor_view import CursorView
from distdbg.tui.wrapped import wrap

Key = Hashable
#: What is free at the left, as in the lines of the frame.
PAD: Final = 1
#: What a column keeps that gives way to others.
_MIN_WIDTH: Final = 10
#: What filters or sorts takes at most one part in so many of the time.
_CHOOSING_SHARE: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    title: str
    width: int
    is_right: bool = False
    grows: bool = False
    """Takes what is left of the line; of several, the same for each."""
    from_width: int = 0
    """Left out on a narrower screen."""


def widths(
    columns: Sequence[TableColumn],
    width: int,
    hidden: Collection[int] = (),
    needs: Mapping[int, int] | None = None,
) -> list[tuple[int, int]]:
    """Which columns a line of this width has, and how wide they are, one letter between two of them.

    Those that grow also give way: down to what a word needs, from the widest on. `hidden` are left out; a
    column that `needs` so much gets it, from those that grow and then from those that are left out first.
    """
    screen = width + PAD + 1  # with the scrollbar
    shown = [
        at for at, column in enumerate(columns) if column.from_width <= screen and at not in hidden
    ]
    found = _share(columns, shown, width, needs or {})
    while needs and any(wide < needs.get(at, 0) for at, wide in found):
        optional = [at for at in shown if columns[at].from_width and at not in needs]
        if not optional:
            break
        shown.remove(max(optional, key=lambda at: (columns[at].from_width, at)))
        found = _share(columns, shown, width, needs)
    return found


def _share(
    columns: Sequence[TableColumn], shown: Sequence[int], width: int, needs: Mapping[int, int]
) -> list[tuple[int, int]]:
    """How wide these are."""
    wide = {
        at: columns[at].width if columns[at].grows else max(columns[at].width, needs.get(at, 0))
        for at in shown
    }
    growing = [at for at in shown if columns[at].grows]
    left = width - sum(wide.values()) - max(len(shown) - 1, 0)
    if left >= 0 and growing:
        each, rest = divmod(left, len(growing))
        for place, at in enumerate(growing):
            wide[at] += each + (place < rest)
    while left < 0 and growing:
        widest = max(growing, key=lambda at: wide[at])
        if wide[widest] <= _MIN_WIDTH:
            break
        wide[widest] -= 1
        left += 1
    for needy in (at for at in growing if needs.get(at, 0) > wide[at]):
        for other in (at for at in growing if at != needy):
            least = max(_MIN_WIDTH, min(needs.get(other, 0), wide[other]))
            given = max(min(needs[needy] - wide[needy], wide[other] - least), 0)
            wide[needy] += given
            wide[other] -= given
    return list(wide.items())


def _fit(text: str, wide: int, is_right: bool) -> str:
    """Make a text as wide as its column, also where letters are wider than one cell."""
    if text.isascii():
        text = shorten(text, wide)
        return text.rjust(wide) if is_right else text.ljust(wide)
    length = cell_len(text)
    if length > wide:
        return set_cell_size(text, wide - 1) + "…"
    return " " * (wide - length) + text if is_right else text + " " * (wide - length)


#: The keys that go from line to line.
class RowTable(CursorView):
    """Rows under a header, one of them under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("greater_than_sign", "sort(1)", "sort by the next column"),
        ("less_than_sign", "sort(-1)", "sort by the column before"),
        ("i", "invert", "reverse the order"),
    ]

    class Chosen(Message):
        """Enter, or a second click, on a row."""

        def __init__(self, table: RowTable, key: Key) -> None:
            super().__init__()
            self.table = table
            self.key = key

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(
        self,
        columns: Sequence[TableColumn],
        cells: Callable[[Any], Sequence[Cell]],
        *,
        is_fault: Callable[[Any], bool] = lambda key: False,
        sort_key: Callable[[Any, int], Any] | None = None,
        id: str | None = None,
    ) -> None:
        """`cells(key)` has one cell per column; `sort_key(key, column)` what it is sorted by."""
        super().__init__(id=id)
        self.columns = list(columns)
        self._cells = cells
        self._is_fault = is_fault
        self._sort_key = sort_key or (lambda key, at: cells(key)[at].text)
        self.keys: list[Key] = []
        """What is to be seen, in order."""
        self.sorted_by: int | None = None
        self.is_inverted = False
        self._cursor: Key | None = None
        self._drawn: dict[int, list[Cell]] = {}
        self._choose_at = 0.0
        self._layout: tuple[int, list[tuple[int, int]]] = (0, [])
        self._hidden: frozenset[int] = frozenset()
        self._needs: Mapping[int, int] = {}
        self._has_been_moved = False

    # ------------------------------------------------------------------------------- what is shown

    def show(self, keys: Sequence[Key]) -> None:
        """Show these rows; also when only what is in them has changed."""
        self._all = keys
        shown = self._choose(keys)
        if shown != self.keys or (not shown and self._why_nothing() != self._said):
            self.keys = shown
            self._keep_cursor()
            self.virtual_size = Size(0, len(shown) + 1)
            self._drawn.clear()
            self.refresh()
            return
        top = round(self.scroll_y)
        for y in range(1, self.size.height):
            at = top + y - 1
            if at >= len(shown):
                break
            cells = list(self._cells(shown[at]))
            if self._drawn.get(at) != cells:
                self._drawn[at] = cells
                self.refresh(Region(0, y, self.size.width, 1))

    def again(self) -> None:
        """The filter, the order or the columns have changed."""
        self.keys = []
        self._choose_at = 0.0
        self._drawn.clear()
        self.show(self._all)
        self.refresh()

    def _choose(self, keys: Sequence[Key]) -> list[Any]:
        """Those that are not left out, in order. What takes long is not done each time."""
        if self.filter is None and self.sorted_by is None:
            shown = [key for key in keys if not self.only_faults or self._is_fault(key)]
            return shown[::-1] if self.is_inverted else shown
        begin = time.perf_counter()
        if begin < self._choose_at:
            known = set(keys)
            return [key for key in self.keys if key in known]
        shown = [
            key
            for key in keys
            if (not self.only_faults or self._is_fault(key))
            and (self.filter is None or self.filter.fits(self._cells(key)))
        ]
        if self.sorted_by is not None:
            at = self.sorted_by
            shown.sort(key=lambda key: self._sort_key(key, at), reverse=self.is_inverted)
        elif self.is_inverted:
            shown.reverse()
        end = time.perf_counter()
        self._choose_at = end + (end - begin) * _CHOOSING_SHARE
        return shown

    def fit_columns(self, hidden: Collection[int], needs: Mapping[int, int]) -> None:
        """Leave columns out, and give others what they need; see `widths`."""
        if self._hidden != frozenset(hidden) or self._needs != needs:
            self._hidden, self._needs = frozenset(hidden), dict(needs)
            self._layout = (0, [])
            self.refresh()

    def set_columns(self, columns: Sequence[TableColumn]) -> None:
        """Have other columns from now on; whoever calls it shows other rows then."""
        self.columns = list(columns)
        self._layout = (0, [])
        self._hidden, self._needs = frozenset(), {}
        self.keys = []
        self._drawn.clear()
        self.refresh()

    @property
    def line_width(self) -> int:
        """What a row has room for: beside what is free at the left, and the scrollbar at the right.

        Where there is no scrollbar its column is free, as in the lines of the frame.
        """
        return max(self.size.width - PAD - 1, 0)

    @property
    def _whole_width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def cursor(self) -> Key | None:
        """The key of the row under the cursor; None in an empty table."""
        return self.keys[self._at] if self._at < len(self.keys) else None

    def move_to(self, key: Key) -> None:
        """Put the cursor on this row, where it is shown."""
        if key in self.keys:
            self._go(self.keys.index(key))

    def _keep_cursor(self) -> None:
        if self._cursor in self.keys and self._has_been_moved:
            self._at = self.keys.index(self._cursor)
        else:  # nobody has chosen a row: it stays on the first, whichever that is now
            self._at = max(min(self._at, len(self.keys) - 1), 0)
            self._cursor = self.cursor

    # ------------------------------------------------------------------------------- drawing

    def render_line(self, y: int) -> Strip:
        width = self.line_width
        if y == 0:
            return self._line(self._head(), "head", width)
        at = round(self.scroll_y) + y - 1
        if at >= len(self.keys):
            self._drawn.pop(at, None)
            if not self.keys:
                return self._empty(y - 1, width)
            return Strip.blank(self._whole_width, self._style("", Tone.PLAIN))
        cells = self._drawn.get(at)
        if cells is None:
            cells = self._drawn[at] = list(self._cells(self.keys[at]))
        return self._line(cells, "cursor" if at == self._at else "", width)

    def _empty(self, row: int, width: int) -> Strip:
        """A row of the words that stand where no rows are."""
        self._said = self._why_nothing()
        rows = list(wrap((Cell(self._said),), width, 0))
        text = " " * PAD + ("".join(cell.text for cell in rows[row]) if row < len(rows) else "")
        return Strip([Segment(text, self._style("", Tone.MUTED))]).adjust_cell_length(
            self._whole_width, self._style("", Tone.PLAIN)
        )

    def _head(self) -> list[Cell]:
        mark = "▲" if self.is_inverted else "▼"
        return [
            Cell(f"{column.title}{mark}" if at == self.sorted_by else column.title)
            for at, column in enumerate(self.columns)
        ]

    def _line(self, cells: Sequence[Cell], part: str, width: int) -> Strip:
        """One row; neighbours of one style are one piece, which is less for textual to do."""
        plain = self._style(part, Tone.PLAIN)
        segments: list[Segment] = []
        text, style = " " * PAD, plain
        for at, wide in self._widths(width):
            cell = cells[at]
            own = plain if cell.tone is Tone.PLAIN else self._style(part, cell.tone)
            if own is not style:
                segments.append(Segment(text, style))
                text, style = "", own
            text += _fit(cell.text, wide, self.columns[at].is_right) + " "
        segments.append(Segment(text, style))
        return Strip(segments).adjust_cell_length(self._whole_width, plain)

    def _widths(self, width: int) -> list[tuple[int, int]]:
        """Which columns are drawn, and how wide."""
        if self._layout[0] != width:
            self._layout = (width, widths(self.columns, width, self._hidden, self._needs))
        return self._layout[1]

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(0, len(self.keys) + 1)
        self._drawn.clear()
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._drawn.clear()
        self.refresh()

    # ------------------------------------------------------------------------------- keys, mouse

    def _go(self, at: int) -> None:
        at = max(min(at, len(self.keys) - 1), 0)
        if at == self._at and self._cursor is not None:
            return
        self._at, self._has_been_moved = at, True
        self._cursor = self.cursor
        top, height = round(self.scroll_y), self.size.height - 1
        if at < top:
            self.scroll_to(y=at, animate=False)
        elif at >= top + height:
            self.scroll_to(y=at - height + 1, animate=False)
        self.refresh()
        self.post_message(self.Moved())

    def _count(self) -> int:
        return len(self.keys)

    def action_page(self, by: int) -> None:
        self._go(self._at + by * max(self.size.height - 2, 1))

    def action_choose(self) -> None:
        key = self.cursor
        if key is not None:
            self.post_message(self.Chosen(self, key))

    def sort_by(self, title: str, *, is_inverted: bool = False) -> bool:
        """Sort by the column with this title, or with none as usual; False: there is none."""
        at = next((at for at, one in enumerate(self.columns) if one.title == title), None)
        if title and at is None:
            return False
        self.sorted_by, self.is_inverted = at if title else None, is_inverted
        self.again()
        return True

    @property
    def sortable(self) -> list[str]:
        """The titles of the columns that are shown."""
        shown = self._widths(self.line_width)
        return [self.columns[at].title for at, _ in shown if self.columns[at].title.strip()]

    def action_sort(self, by: int) -> None:
        shown = [at for at, _ in self._widths(self.line_width) if self.columns[at].title.strip()]
        places: list[int | None] = [None, *shown]
        here = places.index(self.sorted_by) if self.sorted_by in places else 0
        self.sorted_by = places[(here + by) % len(places)]
        self.again()

    def action_invert(self) -> None:
        self.is_inverted = not self.is_inverted
        self.again()

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            self._sort_by_click(event.x)
            return
        at = round(self.scroll_y) + event.y - 1
        if at < len(self.keys):
            is_again = at == self._at
            self._go(at)
            if is_again:
                self.action_choose()

    def _sort_by_click(self, x: int) -> None:
        start = PAD
        for at, wide in self._widths(self.line_width):
            if start <= x <= start + wide:
                if self.sorted_by == at:
                    self.is_inverted = not self.is_inverted
                self.sorted_by = at
                self.again()
                return
            start += wide + 1
