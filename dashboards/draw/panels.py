"""One function per type of panel, for all but tables: what is inside of its frame."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby
from typing import Final

from dashboards.draw.ask import Line, ask_lines
from dashboards.draw.axes import (
    Rounding,
    Scale,
    log_ticks,
    nice,
    nice_log,
    ticks,
    time_ticks,
)
from dashboards.draw.fill import Asked, Json, Shown
from dashboards.draw.look import GRID, TEXT, WEAK, Field, field_of, line_colors, paint, turbo
from dashboards.draw.shapes import (
    Box,
    fitting,
    line,
    polygon,
    polyline,
    rectangle,
    width_of,
    words,
)
from dashboards.draw.table import table
from dashboards.draw.units import say

#: Moments to mark, each with a colour.
Marks = list[tuple[float, str]]
Drawer = Callable[[Json, Asked, Shown, Box, Marks], list[str]]

_AXIS_LEFT: Final = 62
_AXIS_BOTTOM: Final = 20
_LEGEND: Final = 18
_ON_COLOR: Final = "#111217"


def timeseries(panel: Json, server: Asked, shown: Shown, box: Box, marks: Marks) -> list[str]:
    """Lines over time, stacked or not, with thresholds, marks and a legend."""
    lines = sorted(ask_lines(panel, server, shown), key=lambda it: _natural(it.name))
    if not lines:
        return [_nothing(panel, box)]
    field = field_of(panel)
    colors = line_colors(panel, [it.name for it in lines])
    is_stacked = field.custom.get("stacking", {}).get("mode") == "normal"
    is_log = field.custom.get("scaleDistribution", {}).get("type") == "log"
    below: dict[float, float] = {}
    bands = []
    for it in lines:
        base = [(at, below.get(at, 0.0) if is_stacked else 0.0) for at, _ in it.points]
        top = [(at, low + v) for (at, low), (_, v) in zip(base, it.points, strict=True)]
        below |= dict(top)
        bands.append((base, top))
    defaults = panel["fieldConfig"]["defaults"]
    values = [value for _, top in bands for _, value in top]
    rounding = _rounding(field)
    if is_log:
        low, high = nice_log(values)
    else:
        low, high = nice(values, defaults.get("min"), defaults.get("max"), rounding)
    legend, entries = _legend(box, list(zip([it.name for it in lines], colors, strict=True)))
    plot = box.inner(_AXIS_LEFT, 6, 10, _AXIS_BOTTOM + legend)
    x, y = _time_scale(shown, plot), Scale(low, high, plot.bottom, plot.y, is_log)
    found = [*_time_axis(shown, plot), *_value_axis(plot, y, field, rounding)]
    opacity = field.custom.get("fillOpacity", 0) / 100
    for (base, top), color in zip(bands, colors, strict=True):
        for part in _unbroken(base, top, shown.step_s, 0.0 if is_log else -math.inf):
            edge = [(x.at(at), y.inside(value)) for at, _, value in part]
            floor = [(x.at(at), y.inside(value)) for at, value, _ in part]
            if opacity:
                found.append(polygon([*edge, *reversed(floor)], color, opacity))
            found.append(polyline(edge, color))
    if field.custom.get("thresholdsStyle", {}).get("mode", "off") != "off":
        for step in field.steps:
            if step.get("value") is not None and low < step["value"] <= high:
                at = y.at(step["value"])
                color = paint(step["color"])
                found.append(line(plot.x, at, plot.right, at, color, dashes="6 4"))
    for at, color in marks:
        found.append(line(x.at(at), plot.y, x.at(at), plot.bottom, color, dashes="3 3"))
        foot = [(x.at(at) + dx, plot.bottom + dy) for dx, dy in ((-4, 5), (4, 5), (0, -1))]
        found.append(polygon(foot, color, 1))
    return [*found, *entries]


def stat(panel: Json, server: Asked, shown: Shown, box: Box, marks: Marks) -> list[str]:
    """The last number, large; several of them beside each other."""
    lines = [it for it in ask_lines(panel, server, shown) if it.last is not None]
    field = field_of(panel)
    if not lines:
        return [_nothing(panel, box)]
    found = []
    is_solid = panel["options"].get("colorMode", "").startswith("background")
    width = box.w / len(lines)
    for at, it in enumerate(lines):
        last = it.last or 0.0
        color = field.color_of(last)
        part = Box(box.x + at * width, box.y, width, box.h)
        if is_solid:
            found.append(rectangle(part, color, radius=2))
        text = field.word_for(last) or say(last, field.unit, field.decimals)
        has_name = panel["options"].get("textMode") == "value_and_name"
        size = min(
            part.h * (0.4 if has_name else 0.5), 0.85 * part.w / max(len(text) * 0.55, 1), 56
        )
        ink = _ON_COLOR if is_solid else color
        middle = part.x + part.w / 2
        y = part.y + part.h / 2 + (part.h * 0.14 if has_name else 0)
        found.append(words(middle, y, text, size=size, color=ink, anchor="middle", weight=500))
        if has_name:
            name = words(middle, part.y + part.h * 0.2, it.name, size=14, anchor="middle")
            found.append(name)
    return found


def bargauge(panel: Json, server: Asked, shown: Shown, box: Box, marks: Marks) -> list[str]:
    """A bar for each series, from left to right."""
    lines = [it for it in ask_lines(panel, server, shown) if it.last is not None]
    field = field_of(panel)
    if not lines:
        return [_nothing(panel, box)]
    defaults = panel["fieldConfig"]["defaults"]
    values = [it.last or 0.0 for it in lines]
    low, high = nice(values, defaults.get("min"), defaults.get("max"), _rounding(field))
    height = min(box.h / len(lines), 34)
    left = min(max(width_of(it.name, 13) for it in lines) + 12, box.w / 3)
    found = []
    for at, it in enumerate(lines):
        last = it.last or 0.0
        row = Box(box.x + left, box.y + at * height + 2, box.w - left - 70, height - 6)
        if row.bottom > box.bottom + 1:
            break
        color, y = field.color_of(last), row.y + row.h / 2
        length = Scale(low, high, 0, row.w).inside(last)
        found += [
            words(box.x + 4, y, fitting(it.name, left - 8, 13), size=13),
            rectangle(row, GRID, radius=2),
            rectangle(Box(row.x, row.y, length, row.h), color, radius=2, opacity=0.45),
            line(row.x + length, row.y, row.x + length, row.bottom, color, width=2),
            words(row.right + 8, y, say(last, field.unit, field.decimals), size=14, color=color),
        ]
    return found


def heatmap(panel: Json, server: Asked, shown: Shown, box: Box, marks: Marks) -> list[str]:
    """Buckets of a histogram over time: each is a row, the colour says how many fell into it."""
    columns = _buckets(ask_lines(panel, server, shown))
    most = max((count for row in columns.values() for count in row.values()), default=0.0)
    if most <= 0:
        return [_nothing(panel, box)]
    bounds = sorted({le for row in columns.values() for le, count in row.items() if count > 0})
    known = sorted({le for row in columns.values() for le in row})
    known = known[known.index(bounds[0]) : known.index(bounds[-1]) + 1]
    unit = panel["options"].get("yAxis", {}).get("unit", "s")
    exponent = panel["options"].get("color", {}).get("exponent", 0.5)
    plot = box.inner(_AXIS_LEFT, 6, 10, _AXIS_BOTTOM + _LEGEND)
    x = _time_scale(shown, plot)
    height = plot.h / len(known)
    width = x.at(shown.begin_s + shown.step_s) - plot.x
    found = _time_axis(shown, plot)
    every = math.ceil(len(known) * 16 / plot.h)
    for at, le in enumerate(known):
        y = plot.bottom - (at + 1) * height
        if at % every == 0:
            found.append(words(plot.x - 6, y, say(le, unit), size=11, color=WEAK, anchor="end"))
        for moment, row in columns.items():
            if count := row.get(le, 0.0):
                color = turbo((count / most) ** exponent)
                cell = Box(x.at(moment) - width, y, width + 0.3, height)
                found.append(rectangle(cell, color))
    ramp = Box(plot.x, box.bottom - 12, 160, 8)
    for n in range(40):
        part = Box(ramp.x + n * ramp.w / 40, ramp.y, ramp.w / 40 + 0.3, ramp.h)
        found.append(rectangle(part, turbo((n + 1) / 40)))
    found.append(words(ramp.right + 8, ramp.y + 4, f"up to {most:.0f}", size=11, color=WEAK))
    return found


def statetimeline(panel: Json, server: Asked, shown: Shown, box: Box, marks: Marks) -> list[str]:
    """A band for each series; the colour and the word say what it was."""
    lines = sorted(ask_lines(panel, server, shown), key=lambda it: _natural(it.name))
    field = field_of(panel)
    if not lines:
        return [_nothing(panel, box)]
    states = dict.fromkeys(value for it in lines for _, value in it.points)
    entries = [(field.word_for(it) or f"{it:g}", field.color_of(it)) for it in sorted(states)]
    legend, drawn = _legend(box, entries)
    left = min(max(width_of(it.name, 12) for it in lines) + 14, box.w / 4)
    plot = box.inner(left, 4, 10, _AXIS_BOTTOM + legend)
    x = _time_scale(shown, plot)
    height = plot.h / len(lines)
    found = _time_axis(shown, plot)
    for at, it in enumerate(lines):
        y = plot.y + at * height
        if height > 11 or at % math.ceil(11 / height) == 0:
            found.append(words(plot.x - 8, y + height / 2, it.name, size=12, anchor="end"))
        for value, group in groupby(it.points, key=lambda point: point[1]):
            moments = [moment for moment, _ in group]
            begin, end = x.inside(moments[0] - shown.step_s), x.at(moments[-1])
            band = Box(begin, y + height * 0.08, end - begin, height * 0.84)
            found.append(rectangle(band, field.color_of(value), opacity=0.8))
            word = field.word_for(value) or f"{value:g}"
            if height > 14 and band.w > width_of(word, 12) + 12:
                found.append(words(begin + 6, y + height / 2, word, color=_ON_COLOR))
    return [*found, *drawn]


def text(panel: Json, server: Asked, shown: Shown, box: Box, marks: Marks) -> list[str]:
    """Markdown, as far as blocks of code and paragraphs go."""
    found: list[str] = []
    y, is_code = box.y + 12, False
    paragraph: list[str] = []

    def flush() -> None:
        nonlocal y
        row = ""
        for word in " ".join(paragraph).replace("`", "").replace("*", "").split():
            if width_of(f"{row} {word}", 13) > box.w - 12:
                found.append(words(box.x + 6, y, row, size=13))
                row, y = "", y + 19
            row = f"{row} {word}".strip()
        if row:
            found.append(words(box.x + 6, y, row, size=13))
            y += 26
        paragraph.clear()

    for one in shown.fill(panel["options"]["content"]).splitlines():
        if one.startswith("```"):
            flush()
            is_code = not is_code
            y += 6
        elif is_code:
            found.append(rectangle(Box(box.x + 4, y - 12, box.w - 8, 24), GRID, radius=2))
            found.append(words(box.x + 12, y, one, size=13, mono=True))
            y += 24
        elif one.strip():
            paragraph.append(one.lstrip("# "))
        else:
            flush()
    flush()
    return found


DRAWERS: Final[dict[str, Drawer]] = {
    "timeseries": timeseries,
    "stat": stat,
    "bargauge": bargauge,
    "heatmap": heatmap,
    "state-timeline": statetimeline,
    "table": table,
    "text": text,
}


def _buckets(lines: list[Line]) -> dict[float, dict[float, float]]:
    """By moment and upper bound, what fell into the bucket alone."""
    columns: dict[float, dict[float, float]] = {}
    for it in sorted(lines, key=lambda it: float(it.labels["le"])):
        for moment, count in it.points:
            column = columns.setdefault(moment, {})
            column[float(it.labels["le"])] = max(count - sum(column.values()), 0.0)
    for column in columns.values():
        # Rounded by extrapolation, they are seldom whole.
        for le in column:
            column[le] = 0.0 if column[le] < 1e-6 else column[le]
    return columns


def _unbroken(
    base: list[tuple[float, float]], top: list[tuple[float, float]], step_s: float, above: float
) -> list[list[tuple[float, float, float]]]:
    """(moment, from, to), in parts with no point missing; what is not `above` has no place."""
    parts: list[list[tuple[float, float, float]]] = []
    for (at, low), (_, high) in zip(base, top, strict=True):
        if not high > above:
            continue
        if not parts or at - parts[-1][-1][0] > 1.5 * step_s:
            parts.append([])
        parts[-1].append((at, low, high))
    return parts


def _time_scale(shown: Shown, plot: Box) -> Scale:
    return Scale(shown.begin_s, shown.end_s, plot.x, plot.right)


def _time_axis(shown: Shown, plot: Box) -> list[str]:
    x = _time_scale(shown, plot)
    found = []
    for at, label in time_ticks(shown.begin_s, shown.end_s, max(int(plot.w / 80), 2)):
        found.append(line(x.at(at), plot.y, x.at(at), plot.bottom, GRID))
        middle = min(x.at(at), plot.right + 8 - width_of(label, 11) / 2)
        found.append(words(middle, plot.bottom + 11, label, size=11, color=WEAK, anchor="middle"))
    return found


def _rounding(field: Field) -> Rounding:
    least = 0.0 if field.decimals is None or field.unit != "none" else 10.0**-field.decimals
    return Rounding(base=2 if field.unit in ("bytes", "binBps") else 10, least=least)


def _value_axis(plot: Box, y: Scale, field: Field, rounding: Rounding) -> list[str]:
    found = []
    most = max(int(plot.h / 32), 2)
    marked = log_ticks(y.low, y.high, most) if y.is_log else ticks(y.low, y.high, most, rounding)
    for value in marked:
        found.append(line(plot.x, y.at(value), plot.right, y.at(value), GRID))
        label = say(value, field.unit, field.decimals)
        found.append(words(plot.x - 6, y.at(value), label, size=11, color=WEAK, anchor="end"))
    return found


def _legend(box: Box, entries: list[tuple[str, str]]) -> tuple[float, list[str]]:
    """How high it is, and what it is made of; at most two lines of it."""
    found = []
    x, row = box.x + 8, 0
    places = []
    for name, color in dict(entries).items():
        width = width_of(name, 12) + 30
        if x + width > box.right and x > box.x + 8:
            x, row = box.x + 8, row + 1
        if row > 1:
            break
        places.append((x, row, name, color))
        x += width
    height = _LEGEND * (1 + max((row for _, row, _, _ in places), default=0))
    for x, row, name, color in places:
        y = box.bottom - height + _LEGEND * (row + 0.5)
        found.append(rectangle(Box(x, y - 1.5, 14, 3), color, radius=1))
        found.append(words(x + 18, y, fitting(name, box.right - x - 20, 12), color=TEXT))
    return height, found


def _nothing(panel: Json, box: Box) -> str:
    said = panel.get("fieldConfig", {}).get("defaults", {}).get("noValue", "No data")
    return words(box.x + box.w / 2, box.y + box.h / 2, said, size=14, color=WEAK, anchor="middle")


def _natural(name: str) -> list[tuple[int, str]]:
    """Rank 10 comes after rank 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split()]
