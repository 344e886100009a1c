"""Sheet: lines of text under a cursor, for what is no table: a verdict, a stack, a drawn graph.

A line has cells one after the other, and may have a key: what Enter opens, and by which the cursor finds it
again when the text has changed. Lines that are longer than the sheet is wide are wrapped, or moved sideways.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from distdbg.tui.cells import Cell, Filter, Tone
from distdbg.tui.cursor_view import CursorView
from distdbg.tui.table import PAD
from distdbg.tui.wrapped import Row, wrap

#: Half a screen of a small terminal.
_SIDEWAYS = 16


@dataclass(frozen=True, slots=True)
class SheetLine:
    """One line, or some rows that belong together, as a box does."""

    cells: Row
    key: Hashable | None = None
    more: tuple[Row, ...] = ()
    """Further rows of it; such a line is not wrapped."""
    hang: int = 0
    """How far the rows of a wrapped line stand in."""
    is_title: bool = False
    """Seen with what follows it, up to the next title, and not without."""
    is_fault: bool = False
    block: Hashable | None = None
    """Lines of one block are filtered together; None: on its own."""


def line(*parts: str | Cell, key: Hashable | None = None, hang: int = 0) -> SheetLine:
    """A line of words; a bare string is plain."""
    return SheetLine(
        tuple(part if isinstance(part, Cell) else Cell(part) for part in parts), key, hang=hang
    )


def title(text: str) -> SheetLine:
    return SheetLine((Cell(text, Tone.TITLE),), is_title=True)


def narrowed(lines: Sequence[SheetLine], only: Filter | None, only_faults: bool) -> list[SheetLine]:
    """Those that fit, whole blocks, and the titles over them."""
    if only is None and not only_faults:
        return list(lines)
    blocks: set[Hashable] = set()
    own: set[int] = set()
    if only_faults:
        # A block with a fault in it stays; the words are looked for only in what stays.
        faults = {one.block for one in lines if one.is_fault and one.block is not None}
        lines = [
            one for one in lines
            if one.is_title or one.is_fault or (one.block is not None and one.block in faults)
        ]  # fmt: skip
    for at, one in enumerate(lines):
        if one.is_title:
            continue
        rows = (one.cells, *one.more)
        if only is None or only.fits([Cell("".join(c.text for c in row)) for row in rows]):
            own.add(at)
            if one.block is not None:
                blocks.add(one.block)
    shown: list[SheetLine] = []
    heads: list[SheetLine] = []
    for at, one in enumerate(lines):
        if one.is_title:
            heads = [one]
        elif at in own or (one.block is not None and one.block in blocks):
            shown += heads
            heads = []
            shown.append(one)
    return shown


class Sheet(CursorView):
    """Lines, one of them under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("left", "sideways(-1)", "to the left"),
        ("right", "sideways(1)", "to the right"),
    ]

    class Chosen(Message):
        """Enter, or a second click, on a line that has a key."""

        def __init__(self, sheet: Sheet, key: Hashable) -> None:
            super().__init__()
            self.sheet = sheet
            self.key = key

    def __init__(self, *, wraps: bool = True, id: str | None = None) -> None:
        super().__init__(id=id)
        self._wraps = wraps
        self.lines: list[SheetLine] = []
        """What is to be seen."""
        self._left = 0
        self._rows: list[tuple[int, Row]] = []
        self._is_new = True
        self._first: list[int] = []
        """The first row of each line."""

    # ------------------------------------------------------------------------------- what is shown

    def show(self, lines: Sequence[SheetLine], nothing: str = "") -> None:
        self.nothing = nothing
        if (lines is self._all or lines == self._all) and nothing == self._said:
            return
        self._said = nothing
        self._all = lines
        self.again()

    def again(self) -> None:
        """The lines, the filter or the width have changed."""
        cursor = self.cursor
        was = self._at - (self._first_with(cursor) if cursor is not None else 0)
        self.lines = narrowed(self._all, self.filter, self.only_faults)
        if cursor is not None:
            first = self._first_with(cursor)
            # On the same line of what has this key, where it still has so many.
            if first >= 0:
                self._at = first
                if 0 < was < len(self.lines) - first and self.lines[first + was].key == cursor:
                    self._at = first + was
        self._at = max(min(self._at, len(self.lines) - 1), 0)
        if self._is_new and self.lines:
            self._is_new = False
            # The words over the first thing are no place to begin at.
            self._at = next((at for at, one in enumerate(self.lines) if not one.is_title), 0)
        self._lay_out()

    def _first_with(self, key: Hashable) -> int:
        return next((at for at, one in enumerate(self.lines) if one.key == key), -1)

    def _lay_out(self) -> None:
        width = self.size.width
        most = width - PAD - 1
        rows: list[tuple[int, Row]] = []
        first: list[int] = []
        for at, one in enumerate(self.lines):
            first.append(len(rows))
            if one.more or not self._wraps or not width:
                rows += ((at, row) for row in (one.cells, *one.more))
            else:
                rows += ((at, row) for row in wrap(one.cells, most, one.hang))
        self._rows, self._first = rows, first
        self.virtual_size = Size(width, len(rows))
        self.refresh()

    @property
    def cursor(self) -> Hashable | None:
        """The key of the line under the cursor."""
        return self.lines[self._at].key if self._at < len(self.lines) else None

    def move_to(self, key: Hashable) -> None:
        """Put the cursor on the first line with this key."""
        at = self._first_with(key)
        if at >= 0:
            self._go(at)

    # ------------------------------------------------------------------------------- drawing

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        at = round(self.scroll_y) + y
        if at >= len(self._rows):
            if not self._rows and y < 3:
                said = list(wrap((Cell(self._why_nothing(), Tone.MUTED),), width - PAD - 1, 0))
                if y < len(said):
                    return self._strip(said[y], False)
            return Strip.blank(width, self._style("", Tone.PLAIN))
        owner, cells = self._rows[at]
        # The first row of a box is enough: a bar of four would hide what is drawn.
        is_cursor = owner == self._at and (at == self._first[owner] or not self.lines[owner].more)
        return self._strip(cells, is_cursor)

    def _strip(self, cells: Row, is_cursor: bool) -> Strip:
        part = "cursor" if is_cursor else ""
        plain = self._style(part, Tone.PLAIN)
        strip = Strip([Segment(cell.text, self._style(part, cell.tone)) for cell in cells])
        if self._left:
            strip = strip.crop(self._left, strip.cell_length)
        pad = Strip([Segment(" " * PAD, plain)])
        return Strip.join([pad, strip]).adjust_cell_length(self.size.width, plain)

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.refresh()

    # ------------------------------------------------------------------------------- keys, mouse

    def _go(self, at: int) -> None:
        self._at = at = max(min(at, len(self.lines) - 1), 0)
        if not self.lines:
            return
        first = self._first[at]
        last = self._first[at + 1] - 1 if at + 1 < len(self._first) else len(self._rows) - 1
        top, height = round(self.scroll_y), self.size.height
        if first < top or last - first >= height:
            self.scroll_to(y=first, animate=False)
        elif last >= top + height:
            self.scroll_to(y=last - height + 1, animate=False)
        self.refresh()

    def _count(self) -> int:
        return len(self.lines)

    def action_page(self, by: int) -> None:
        if self.lines:
            row = self._first[self._at] + by * max(self.size.height - 1, 1)
            self._go(self._rows[max(min(row, len(self._rows) - 1), 0)][0])

    def action_choose(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Chosen(self, self.cursor))

    def action_sideways(self, by: int) -> None:
        if self._wraps:
            return
        wide = max((sum(cell_len(c.text) for c in row) for _, row in self._rows), default=0)
        most = max(wide + PAD - self.size.width, 0)
        self._left = max(min(self._left + by * _SIDEWAYS, most), 0)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        at = round(self.scroll_y) + event.y
        if at < len(self._rows):
            owner = self._rows[at][0]
            is_again = owner == self._at
            self._go(owner)
            if is_again:
                self.action_choose()
