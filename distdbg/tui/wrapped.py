"""How a line that is longer than the screen is wide becomes several rows. Pure.

Counted is what letters take on the screen: an ideograph is as wide as two latin letters.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len, get_character_cell_size

from distdbg.tui.cells import Cell

Row = tuple[Cell, ...]


def wrap(cells: Row, width: int, hang: int) -> Iterator[Row]:
    """The rows of a line in a sheet of this width: broken at blanks, or within a word that is too long."""
    text = "".join(cell.text for cell in cells)
    if cell_len(text) <= width or width < 1:
        yield cells
        return
    hang = hang if width > hang + 8 else 0
    begin, room, lead = 0, width, 0
    while begin < len(text):
        end = _reach(text, begin, room)
        if end >= len(text):
            end = after = len(text)
        else:
            blank = text.rfind(" ", begin + 1, end + 1)
            # A word longer than half a row is cut: else a path would leave the row empty.
            end = blank if blank > begin + (end - begin) // 2 else end
            after = end + (text[end : end + 1] == " ")
        yield (*((Cell(" " * lead),) if lead else ()), *_slice(cells, begin, end))
        begin, room, lead = after, width - hang, hang


def _reach(text: str, begin: int, room: int) -> int:
    """Up to where the letters from `begin` on fit into so many columns; one at least."""
    if text.isascii():
        return begin + room
    end = begin
    while end < len(text):
        room -= get_character_cell_size(text[end])
        if room < 0 and end > begin:
            break
        end += 1
    return end


def _slice(cells: Row, begin: int, end: int) -> Iterator[Cell]:
    at = 0
    for cell in cells:
        low, high = max(begin - at, 0), min(end - at, len(cell.text))
        if low < high:
            yield Cell(cell.text[low:high], cell.tone)
        at += len(cell.text)
