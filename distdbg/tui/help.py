"""All keys and commands, on one page."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from textual.binding import Binding

from distdbg.tui.cells import Cell, Tone
from distdbg.tui.table import Column, RowTable
from distdbg.tui.view import TablePage

_NAMES = {
    "colon": ":", "slash": "/", "question_mark": "?", "greater_than_sign": ">",
    "less_than_sign": "<", "escape": "esc", "plus": "+", "minus": "-", "space": "space",
}  # fmt: skip


def key_name(key: str) -> str:
    """'escape' as it is on the keyboard."""
    return "  ".join(_NAMES.get(part, part) for part in key.split(","))


class HelpPage(TablePage):
    """A row per key and command."""

    columns: ClassVar[Sequence[Column]] = (
        Column(title="key", width=12),
        Column(title="what it does", width=40, grows=True),
    )

    @property
    def crumb(self) -> str:
        return "help"

    def keys(self) -> Sequence[Hashable]:
        rows: list[tuple[str, str, Tone]] = []
        for source, bindings in (
            ("everywhere", self.top.BINDINGS),
            ("in a table", RowTable.BINDINGS),
            *((page.crumb, page.BINDINGS) for page in self.top.trail[:-1] if page.BINDINGS),
        ):
            rows.append((source, "", Tone.TITLE))
            for binding in bindings:
                key, about = (
                    (binding.key, binding.description)
                    if isinstance(binding, Binding)
                    else (binding[0], binding[2] if len(binding) == 3 else "")
                )
                rows.append((key_name(key), about, Tone.ACCENT))
        from distdbg.tui.commands import COMMANDS

        rows.append(("behind :", "", Tone.TITLE))
        return rows + [
            (f"{command.name} {command.argument}".strip(), command.about, Tone.ACCENT)
            for command in COMMANDS
        ]

    def cells(self, key: Any) -> Sequence[Cell]:
        name, about, tone = key
        return Cell(name, tone), Cell(about)
