"""The queries of a panel, asked: series with their names, and tables after what is done to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dashboards.draw.fill import Asked, Json, Series, Shown

#: By column.
Row: TypeAlias = dict[str, str | float]

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
    rows: list[Row]


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
    """Rows of labels and numbers of all queries, after what the panel does to them."""
    queries = targets(panel)
    frames: list[list[Row]] = []
    for target in queries:
        value = "Value" if len(queries) == 1 else f"Value #{target['refId']}"
        found = ask(target, server, shown)
        frames.append([{**labels, value: points[-1][1]} for labels, points in found])
    table = _side_by_side(frames)
    for change in panel.get("transformations", ()):
        if change["id"] == "merge":
            table = _merge(frames)
        elif change["id"] == "organize":
            table = _organize(table, change["options"])
        else:
            raise ValueError(f"not understood: the transformation {change['id']}")
    return _sorted(table, panel)


def _side_by_side(frames: Sequence[Sequence[Row]]) -> Table:
    rows = [dict(row) for frame in frames for row in frame]
    return Table(list(dict.fromkeys(name for row in rows for name in row)), rows)


def _merge(frames: Sequence[Sequence[Row]]) -> Table:
    """Rows are one where all columns that every query has are equal, and no other one contradicts."""
    table = _side_by_side(frames)
    columns = [dict.fromkeys(name for row in frame for name in row) for frame in frames if frame]
    common = [name for name in table.columns if all(name in some for some in columns)]
    merged: list[Row] = []
    for row in table.rows:
        for known in merged:
            agrees = all(known.get(it) == row.get(it) for it in common)
            if agrees and all(known[it] == row[it] for it in known.keys() & row.keys()):
                known |= row
                break
        else:
            merged.append(dict(row))
    return Table(table.columns, merged)


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
