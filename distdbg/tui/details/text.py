"""A text in full: a line of the log that is longer than the terminal is wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdbg.tui.cells import Cell, Tone, one_line
from distdbg.tui.sheet import SheetLine, line
from distdbg.tui.targets import TextTarget, of_ranks
from distdbg.tui.view import SheetPage


class TextPage(SheetPage):
    """The text, and the ranks that it is of."""

    takes_filter = False

    def __init__(self, target: TextTarget) -> None:
        super().__init__()
        self._target = target

    @property
    def crumb(self) -> str:
        return self._target.title

    def lines(self) -> Sequence[SheetLine]:
        return list(self._lines())

    def _lines(self) -> Iterator[SheetLine]:
        from distdbg.render.words import ranks_text

        if self._target.ranks:
            yield line(
                Cell(ranks_text(self._target.ranks), Tone.ACCENT), key=of_ranks(self._target.ranks)
            )
        for text in self._target.text.split("\n"):
            yield line(one_line(text))
