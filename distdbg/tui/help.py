"""All keys and commands, on one page: made from the bindings and the table of commands."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, cast

from textual.binding import BindingType

from distdbg.tui.cells import Cell, Tone
from distdbg.tui.commands import Commands
from distdbg.tui.cursor_view import CursorView
from distdbg.tui.keys import is_there, keys_of, page_keys
from distdbg.tui.line import Line
from distdbg.tui.table import RowTable, TableColumn
from distdbg.tui.view import Dashboard, TablePage


class DocumentedApp(Dashboard, Protocol):
    """The app whose keys and commands are told (app.py)."""

    BINDINGS: ClassVar[list[BindingType]]
    commands: Commands


class HelpPage(TablePage):
    """A row per key and command; those of the page that was looked at come first."""

    columns: ClassVar[Sequence[TableColumn]] = (
        TableColumn(title="key", width=16),
        TableColumn(title="what it does", width=40, grows=True),
    )

    @property
    def crumb(self) -> str:
        return "help"

    def keys(self) -> Sequence[Hashable]:
        top = cast(DocumentedApp, self.app)
        rows: list[tuple[str, str, Tone]] = []
        for page in reversed(top.trail):
            if not isinstance(page, HelpPage) and (keys := page_keys(page)):
                rows.append((f"in {page.crumb}", "", Tone.TITLE))
                rows += [(key.name, key.about, Tone.ACCENT) for key in keys]
        rows += section("everywhere", [b for b in top.BINDINGS if is_there(top, *keys_of([b]))])
        rows += section("in a table", [*CursorView.BINDINGS, *RowTable.BINDINGS])
        rows += section("while a line is typed", Line.BINDINGS)
        rows.append(("behind :", "", Tone.TITLE))
        return rows + [
            (f"{command.name} {command.argument}".strip(), command.about, Tone.ACCENT)
            for command in top.commands.all()
        ]

    def cells(self, key: Any) -> Sequence[Cell]:
        name, about, tone = key
        return Cell(name, tone), Cell(about)


def section(title: str, bindings: Iterable[BindingType]) -> list[tuple[str, str, Tone]]:
    """A heading, and a row for each key."""
    return [
        (title, "", Tone.TITLE),
        *((key.name, key.about, Tone.ACCENT) for key in keys_of(bindings)),
    ]
