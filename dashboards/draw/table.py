"""Tables: columns as wide as they say or as is left, cells in the colour of their number."""

from __future__ import annotations

from dashboards.draw.ask import Table, ask_table
from dashboards.draw.fill import Asked, Json, Shown
from dashboards.draw.look import GRID, TEXT, WEAK, field_of, paint
from dashboards.draw.shapes import Box, fitting, line, words
from dashboards.draw.units import say

_ROW = 30
_LINK = "#6E9FFF"


def table(
    panel: Json, server: Asked, shown: Shown, box: Box, marks: list[tuple[float, str]]
) -> list[str]:
    """The rows that have room, and how many more there are."""
    content = ask_table(panel, server, shown)
    if not content.rows:
        said = panel["fieldConfig"]["defaults"].get("noValue", "No data")
        middle = box.x + box.w / 2, box.y + box.h / 2
        return [words(*middle, said, size=14, color=WEAK, anchor="middle")]
    columns = _places(panel, content, box)
    found = []
    for name, x, width in columns:
        found.append(
            words(x + 8, box.y + _ROW / 2, fitting(name, width - 8, 12), color=_LINK, weight=500)
        )
    room = int(box.h / _ROW) - 1
    rows = content.rows if len(content.rows) <= room else content.rows[: room - 1]
    for at, row in enumerate(rows):
        y = box.y + (at + 1) * _ROW
        found.append(line(box.x, y, box.right, y, GRID))
        for name, x, width in columns:
            text, color = _cell(panel, name, row.get(name))
            found.append(
                words(x + 8, y + _ROW / 2, fitting(text, width - 10, 13), size=13, color=color)
            )
    if len(rows) < len(content.rows):
        more = f"and {len(content.rows) - len(rows)} more rows"
        found.append(words(box.x + 8, box.y + (len(rows) + 1.5) * _ROW, more, size=12, color=WEAK))
    return found


def _cell(panel: Json, name: str, cell: str | float | None) -> tuple[str, str]:
    if cell is None:
        return "", TEXT
    field = field_of(panel, name)
    if isinstance(cell, str):
        return field.word_for(cell) or cell, field.color_of(cell)
    color = TEXT
    if field.custom.get("cellOptions", {}).get("type", "").startswith("color"):
        color = field.color_of(cell)
    return field.word_for(cell) or say(cell, field.unit, field.decimals), color or paint("text")


def _places(panel: Json, content: Table, box: Box) -> list[tuple[str, float, float]]:
    fixed = {it: field_of(panel, it).custom.get("width") for it in content.columns}
    taken = sum(width for width in fixed.values() if width)
    free = sum(1 for width in fixed.values() if not width)
    rest = max((box.w - taken) / free, 60) if free else 0
    stretch = 1 if free else box.w / max(taken, 1)
    x, found = box.x, []
    for name, width in fixed.items():
        wide = width * stretch if width else rest
        found.append((name, x, wide))
        x += wide
    return found
