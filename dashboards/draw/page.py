"""A whole dashboard: its title, what is chosen, its panels on their grid."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import Final

from dashboards.draw.fill import Asked, Json, Shown
from dashboards.draw.look import BORDER, CANVAS, PANEL, TEXT, WEAK, paint
from dashboards.draw.panels import DRAWERS, Marks
from dashboards.draw.shapes import Box, clipped, fitting, rectangle, width_of, words

WIDTH: Final = 1440
#: Of Grafana: a unit of height, and between panels.
_UNIT: Final = 30
_GAP: Final = 8
_TOP: Final = 96
_TITLE: Final = 30


def page(board: Json, server: Asked, shown: Shown) -> str:
    """The SVG of a dashboard; `shown` has a value for each of its variables."""
    marks = _marks(board, server, shown)
    found: list[str] = _head(board, shown)
    bottom = 0.0
    for panel in board["panels"]:
        box = _place(panel["gridPos"])
        bottom = max(bottom, box.bottom)
        if panel["type"] == "row":
            found.append(
                words(box.x, box.y + box.h / 2, f"⌄ {panel['title']}", size=16, weight=500)
            )
            continue
        found.append(rectangle(box, PANEL, edge=BORDER, radius=2))
        has_title = bool(panel.get("title"))
        title = fitting(shown.fill(panel.get("title", "")), box.w - 20, 14)
        inside = box.inner(8, _TITLE if has_title else 8, 8, 8)
        drawn = DRAWERS[panel["type"]](panel, server, shown, inside, marks)
        found += clipped(f"panel-{panel['id']}", inside, drawn)
        found.append(words(box.x + 10, box.y + 16, title, size=14, weight=500))
        found.append(f"<title>{escape(panel.get('description', ''))}</title>")
    height = bottom + _GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}"'
            ' font-family="Inter, Roboto, Helvetica, Arial, sans-serif">',
            rectangle(Box(0, 0, WIDTH, height), CANVAS),
            *found,
            "</svg>\n",
        ]
    )


def _head(board: Json, shown: Shown) -> list[str]:
    found = [words(16, 26, board["title"], size=20, weight=500)]
    moments = [
        datetime.fromtimestamp(it, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for it in (shown.begin_s, shown.end_s)
    ]
    time = f"{moments[0]} to {moments[1]} UTC"
    found.append(words(WIDTH - 16, 26, time, size=13, color=WEAK, anchor="end"))
    x = 16.0
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource":
            continue
        label = variable.get("label") or variable["name"]
        chosen = shown.chosen[variable["name"]]
        value = "All" if variable.get("includeAll") and chosen in (".*", ".+") else chosen
        wide = width_of(label, 13) + width_of(value, 13) + 40
        found += [
            rectangle(Box(x, 50, wide, 28), PANEL, edge=BORDER, radius=2),
            words(x + 10, 64, label, size=13, color=TEXT, weight=500),
            words(x + 24 + width_of(label, 13), 64, value, size=13, color=WEAK),
        ]
        x += wide + 10
    return found


def _place(grid: Json) -> Box:
    unit = (WIDTH - 2 * _GAP) / 24
    return Box(
        _GAP + grid["x"] * unit,
        _TOP + grid["y"] * (_UNIT + _GAP),
        grid["w"] * unit - _GAP,
        grid["h"] * (_UNIT + _GAP) - _GAP,
    )


def _marks(board: Json, server: Asked, shown: Shown) -> Marks:
    """When each annotation began to be true."""
    found: Marks = []
    for one in board.get("annotations", {}).get("list", ()):
        if not one.get("expr") or not one.get("enable", True):
            continue
        step_s = shown.step_s
        series = server.query_range(shown.fill(one["expr"]), shown.begin_s, shown.end_s, step_s)
        for _, points in series:
            before = float("-inf")
            for at, _ in points:
                if at - before > 1.5 * step_s:
                    found.append((at, paint(one.get("iconColor", "red"))))
                before = at
    return found
