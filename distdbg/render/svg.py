"""The drawings of the page that need no script: who waits for whom, how long, and who is late. Pure.

Colours are classes of page.css; every text goes through `text_of`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Final

from distdbg.render.aggregate import RankLateness, Waits
from distdbg.render.waitgraph import AlikeRanks, WaitGraphPicture
from distdbg.render.words import ranks_text, safe, seconds_text

_BOX: Final = (250, 56)
_GAP: Final = 26
_MAX_LATE: Final = 16


def text_of(text: str, most: int = 2000) -> str:
    """Escaped for HTML, attributes too, and without what moves or hides text."""
    return html.escape(safe(text, most), quote=True)


# ---------------------------------------------------------------------------------- wait-for graph


def draw_wait_graph(graph: WaitGraphPicture) -> str:
    """Draw the causes on the right, on a circle where they wait for each other; '' without nodes."""
    nodes = graph.nodes
    if not any(node.on for node in nodes):
        return ""
    core = [i for i, node in enumerate(nodes) if node.is_core and (node.on or _is_waited(nodes, i))]
    if not core:  # nobody is to blame: those who wait for nobody
        core = [i for i, node in enumerate(nodes) if not node.on] or [0]
    others = [i for i in range(len(nodes)) if i not in core]
    width = _BOX[0]
    is_cycle = len(core) > 2 and all(nodes[i].on for i in core)
    right = _circle(len(core)) if is_cycle else _column(len(core), 2 * _GAP)
    left = _column(len(others), _GAP)
    height = max(y for _, y in right + left) + _BOX[1] + 2 * _GAP
    begin = width + 150 if others else 0
    places: dict[int, tuple[float, float]] = {}
    for members, points, shift in ((others, left, 0), (core, right, begin)):
        middle = max((y for _, y in points), default=0.0) / 2
        for i, (x, y) in zip(members, points, strict=True):
            places[i] = (x + shift + width / 2 + 10, y + height / 2 - middle)
    total = max(x for x, _ in places.values()) + width / 2 + 70
    parts = [
        f'<svg class="graph" viewBox="0 0 {total:.0f} {height:.0f}" role="img" '
        f'aria-label="who waits for whom" width="{total:.0f}" height="{height:.0f}">'
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z"/></marker>'
        '<marker id="arrow-core" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path class="core" d="M0 0L10 5L0 10z"/>'
        "</marker></defs>"
    ]
    for i, node in enumerate(nodes):
        for on in node.on:
            is_core = node.is_core and nodes[on].is_core and i in core and on in core
            title = f"{ranks_text(node.ranks)} in {node.text} for {ranks_text(nodes[on].ranks)}"
            parts.append(_arrow(places[i], places[on], is_core, i in nodes[on].on, title))
    parts += [_box(node, places[i]) for i, node in enumerate(nodes)]
    parts.append("</svg>")
    return "".join(parts)


def _column(count: int, gap: int) -> list[tuple[float, float]]:
    """Middles of boxes below each other, from (0, 0) on."""
    return [(0.0, row * (_BOX[1] + gap)) for row in range(count)]


def _circle(count: int) -> list[tuple[float, float]]:
    """Middles of boxes on an ellipse, the first on top, so wide that none lies on another."""
    high = max(70.0, count * (_BOX[1] + _GAP) / 4)
    wide = 1.2 * high
    while True:
        points = []
        for at in range(count):
            angle = 2 * math.pi * at / count - math.pi / 2
            points.append((wide * math.cos(angle), high * math.sin(angle)))
        if not any(map(_lie_on_each_other, points, [*points[1:], points[0]])):
            break
        wide, high = wide + 15, high + 3
    x0, y0 = min(x for x, _ in points), min(y for _, y in points)
    return [(x - x0, y - y0) for x, y in points]


def _lie_on_each_other(one: tuple[float, float], other: tuple[float, float]) -> bool:
    width, height = _BOX
    is_near = abs(one[0] - other[0]) < width + 2 * _GAP
    return is_near and abs(one[1] - other[1]) < height + 1.5 * _GAP


def _is_waited(nodes: Sequence[AlikeRanks], i: int) -> bool:
    return any(i in node.on for node in nodes)


def _arrow(
    start: tuple[float, float], end: tuple[float, float], is_core: bool, bends: bool, title: str
) -> str:
    """From edge to edge of the boxes; two that wait for each other get two bows."""
    (x1, y1), (x2, y2) = start, end
    if start == end:
        return ""
    x1, y1 = _edge_point(start, end)
    x2, y2 = _edge_point(end, start)
    if bends:  # to the side: boxes above each other are left on the right, and reached on the left
        shift = 60 if abs(end[0] - start[0]) < _BOX[0] else 0
        side = 1 if end[1] >= start[1] else -1
        x1, x2 = x1 + side * shift, x2 + side * shift
        dx, dy = x2 - x1, y2 - y1
        length = math.hypot(dx, dy) or 1.0
        bow = 0.0 if shift else 34.0
        mx, my = (x1 + x2) / 2 + bow * dy / length, (y1 + y2) / 2 - bow * dx / length
    else:
        mx, my = (x1 + x2) / 2, (y1 + y2) / 2
    kind, tip = ("edge core", "arrow-core") if is_core else ("edge", "arrow")
    return (
        f'<path class="{kind}" d="M{x1:.0f} {y1:.0f}Q{mx:.0f} {my:.0f} {x2:.0f} {y2:.0f}" '
        f'marker-end="url(#{tip})"><title>{text_of(title)}</title></path>'
    )


def _edge_point(inside: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    dx, dy = towards[0] - inside[0], towards[1] - inside[1]
    scale = min(
        (_BOX[0] / 2 + 3) / abs(dx) if dx else math.inf,
        (_BOX[1] / 2 + 3) / abs(dy) if dy else math.inf,
    )
    return inside[0] + dx * scale, inside[1] + dy * scale


def _box(node: AlikeRanks, place: tuple[float, float]) -> str:
    width, height = _BOX
    x, y = place[0] - width / 2, place[1] - height / 2
    lines = [ranks_text(node.ranks), node.text or "do not wait here", node.site]
    title = "\n".join(line for line in lines if line)
    kind = "node core" if node.is_core else "node"
    shown = [
        f'<text class="{"name" if row == 0 else "op"}" x="{x + 12:.0f}" '
        f'y="{y + 18 + 15 * row:.0f}">{text_of(_clip(line, 28 if row == 0 else 39))}</text>'
        for row, line in enumerate(lines)
        if line
    ]
    return (
        f'<g class="{kind}"><title>{html.escape(safe(title.replace(chr(10), "; "), 600))}</title>'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width}" height="{height}" rx="8"/>'
        f"{''.join(shown)}</g>"
    )


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


# ---------------------------------------------------------------------------------------- heatmap


def draw_heatmap(waits: Waits) -> str:
    """Rows wait for columns; '' when nobody has waited."""
    if not waits.ns:
        return ""
    count = len(waits.lanes)
    size = max(9, min(34, 560 // count))
    longest = max(len(lane.label) for lane in waits.lanes)
    left, top, right = 8 + longest * 7, 20 + longest * 5, 12 + longest * 5
    worst = max(waits.ns.values())
    step = max(1, -(-14 // size))  # labels that do not lie on each other
    parts = [
        f'<svg class="heat" viewBox="0 0 {left + count * size + right} {top + count * size + 8}" '
        f'width="{left + count * size + right}" role="img" aria-label="who waited for whom">'
    ]
    for i, lane in enumerate(waits.lanes):
        if i % step:
            continue
        y, x = top + (i + 0.5) * size + 4, left + (i + 0.5) * size
        label = text_of(lane.label)
        parts.append(
            f'<text class="axis" text-anchor="end" x="{left - 6}" y="{y:.0f}">{label}</text>'
        )
        parts.append(
            f'<text class="axis" transform="translate({x + 4:.0f} {top - 6}) rotate(-50)">{label}</text>'
        )
    parts.append(
        f'<rect class="field" x="{left}" y="{top}" width="{count * size}" height="{count * size}"/>'
    )
    for (waiter, on), ns in sorted(waits.ns.items()):
        share = 0.08 + 0.92 * math.sqrt(ns / worst)
        title = f"{waits.lanes[waiter].label} waited {seconds_text(ns)} for {waits.lanes[on].label}"
        parts.append(
            f'<rect class="cell" x="{left + on * size}" y="{top + waiter * size}" '
            f'width="{size - 1}" height="{size - 1}" fill-opacity="{share:.2f}">'
            f"<title>{text_of(title)}</title></rect>"
        )
    parts.append("</svg>")
    return "".join(parts)


# ------------------------------------------------------------------------------------- stragglers


def draw_lateness(late: Sequence[RankLateness]) -> str:
    """The ranks that cost the others most; '' when nobody was late."""
    shown = sorted((one for one in late if one.cost_ns > 0), key=lambda o: -o.cost_ns)[:_MAX_LATE]
    if not shown:
        return ""
    worst = max(one.worst_ns for one in shown) or 1
    left, width, row = 92, 300, 24
    height = 30 + row * len(shown)
    parts = [
        f'<svg class="late" viewBox="0 0 640 {height}" width="640" role="img" '
        'aria-label="how late ranks came">'
        f'<text class="axis" x="{left}" y="14">late by: bar in the mean, line at worst</text>'
        f'<text class="axis" text-anchor="end" x="520" y="14">cost others</text>'
        '<text class="axis" text-anchor="end" x="632" y="14">was last</text>'
    ]
    for i, one in enumerate(shown):
        y = 26 + i * row
        mean = max(1.5, width * one.mean_ns / worst)
        at = left + max(1.5, width * one.worst_ns / worst)
        title = (
            f"rank {one.rank}: {seconds_text(one.mean_ns)} behind the first in the mean, "
            f"{seconds_text(one.worst_ns)} at worst, in {one.count} ops"
        )
        parts.append(
            f"<g><title>{text_of(title)}</title>"
            f'<text text-anchor="end" x="{left - 8}" y="{y + 13}">rank {one.rank}</text>'
            f'<rect class="track" x="{left}" y="{y + 3}" width="{width}" height="12" rx="3"/>'
            f'<rect class="bar" x="{left}" y="{y + 3}" width="{mean:.1f}" height="12" rx="3"/>'
            f'<line class="worst" x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{y + 18}"/>'
            f'<text text-anchor="end" x="520" y="{y + 13}">{seconds_text(one.cost_ns)}</text>'
            f'<text text-anchor="end" x="632" y="{y + 13}">{one.was_last} of {one.count}</text></g>'
        )
    parts.append("</svg>")
    return "".join(parts)
