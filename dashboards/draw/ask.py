"""The queries of a panel, asked: series with their names, and tables after what is done to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.draw.fill import Asked, Json, Series, Shown

_IN_BRACES = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Line:
    """One series as it is shown."""

    name: str
    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def last(self) -> float | None:
        return self.points[-1][1] if self.points else None


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns; a cell is a word, a number or nothing."""

    columns: list[str]
    rows: list[dict[str, str | float]]


def panels(board: Json) -> Iterator[Json]:
    """All panels of a dashboard that show something, also those of closed rows."""
    for panel in board["panels"]:
        yield from (one for one in (panel, *panel.get("panels", ())) if one["type"] != "row")


def targets(panel: Json) -> list[Json]:
    """The queries of a panel that are shown."""
    return [target for target in panel.get("targets", ()) if not target.get("hide")]


def ask(target: Json, server: Asked, shown: Shown) -> list[Series]:
    """One query, as the panel asks it: a value now, or values over time."""
    expression = shown.fill(target["expr"])
    if target.get("instant"):
        return server.query(expression, shown.end_s)
    return server.query_range(expression, shown.begin_s, shown.end_s, shown.step_s)


def ask_lines(panel: Json, server: Asked, shown: Shown) -> list[Line]:
    """The series of all queries of a panel."""
    found = []
    for target in targets(panel):
        for labels, points in ask(target, server, shown):
            found.append(Line(name_of(target, labels), labels, points))
    return found


def name_of(target: Json, labels: dict[str, str]) -> str:
    """What the legend says; without a form, the labels."""
    form = target.get("legendFormat", "")
    if form and form != "__auto":
        return _IN_BRACES.sub(lambda match: labels.get(match[1], ""), form)
    shown = ", ".join(
        f"{name}={value}" for name, value in sorted(labels.items()) if name != "__name__"
    )
    return labels.get("__name__", "") + (f"{{{shown}}}" if shown else "") or "Value"


def ask_table(panel: Json, server: Asked, shown: Shown) -> Table:
    """Rows of labels and numbers; those of several queries with the same labels are one (`merge`)."""
    queries = targets(panel)
    rows: dict[tuple[tuple[str, str], ...], dict[str, str | float]] = {}
    labels_seen: dict[str, None] = {}
    values = []
    for target in queries:
        value = "Value" if len(queries) == 1 else f"Value #{target['refId']}"
        values.append(value)
        for labels, points in ask(target, server, shown):
            key = tuple(sorted(labels.items()))
            row = rows.setdefault(key, dict(labels))
            row[value] = points[-1][1]
            labels_seen |= dict.fromkeys(labels)
    table = Table([*labels_seen, *values], list(rows.values()))
    for change in panel.get("transformations", ()):
        if change["id"] == "organize":
            table = _organize(table, change["options"])
        elif change["id"] != "merge":
            raise ValueError(f"not understood: the transformation {change['id']}")
    return _sorted(table, panel)


def _organize(table: Table, options: Json) -> Table:
    order = options.get("indexByName", {})
    names = options.get("renameByName", {})
    left = [name for name in table.columns if not options.get("excludeByName", {}).get(name)]
    left.sort(key=lambda name: order.get(name, len(order)))
    rows = [{names.get(it) or it: row[it] for it in left if it in row} for row in table.rows]
    return Table([names.get(it) or it for it in left], rows)


def _sorted(table: Table, panel: Json) -> Table:
    rows = list(table.rows)
    for by in reversed(panel.get("options", {}).get("sortBy") or []):
        name = by["displayName"]
        rows.sort(key=lambda row: _place(row.get(name)), reverse=by.get("desc", False))
    return Table(table.columns, rows)


def _place(cell: str | float | None) -> tuple[int, float, str]:
    if cell is None:
        return 0, 0.0, ""
    return (2, 0.0, cell) if isinstance(cell, str) else (1, cell, "")
