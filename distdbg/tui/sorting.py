"""Sorts the table that is looked at: by the next column, or by one that was named."""

from __future__ import annotations

from distdbg.tui.table import RowTable
from distdbg.tui.view import Dashboard

_NO_TABLE = "no table to sort here"


def table_of(app: Dashboard) -> RowTable | None:
    """The table of the page, where it is one."""
    found = app.trail[-1].first_focus() if app.trail else None
    return found if isinstance(found, RowTable) else None


def sort_next(app: Dashboard) -> None:
    """By the next column; after the last one in the usual order."""
    table = table_of(app)
    if table is None:
        app.show_message(_NO_TABLE, "warning")
        return
    table.action_sort(1)
    at = table.sorted_by
    app.show_message("in default order" if at is None else f"sorted by {table.columns[at].title}")


def sort_by(app: Dashboard, title: str, *, is_inverted: bool = False) -> str:
    """By the column of this title, or how it begins; what was wrong with it, or ''."""
    table = table_of(app)
    if table is None:
        return _NO_TABLE
    names = [name for name in table.sortable if name.startswith(title)]
    if title and title not in names and len(names) != 1:
        return f"no column {title!r}: {', '.join(table.sortable)}"
    name = title if not title or title in names else names[0]
    table.sort_by(name, is_inverted=is_inverted)
    app.show_message(f"sorted by {name}" if name else "in default order")
    return ""
