"""Curves over the number of ranks as SVG, both axes logarithmic."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

_COLOURS = ("#2166ac", "#b2182b", "#1b7837", "#762a83", "#bf812d", "#4d4d4d")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 380, 70, 200, 24, 40


@dataclass(frozen=True, slots=True)
class Curve:
    """A line and its name; a dashed one has the colour of the one before."""

    name: str
    points: Sequence[tuple[float, float]]
    is_dashed: bool = False


def draw_curves(about: str, curves: Sequence[Curve]) -> str:
    """One document; values of 0 are drawn at 1."""
    points = [(x, max(y, 1.0)) for curve in curves for x, y in curve.points]
    left, right = (pick(math.log2(x) for x, _ in points) for pick in (min, max))
    low = math.floor(min(math.log10(y) for _, y in points))
    high = max(math.ceil(max(math.log10(y) for _, y in points)), low + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log2(x) - left) / max(right - left, 1e-9)
        up = (math.log10(max(y, 1.0)) - low) / (high - low)
        return (
            _LEFT + across * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM),
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="11" fill="#444">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="14">{html.escape(about)}</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">ranks</text>',
    ]
    for power in range(low, high + 1):
        x, y = place(2**left, 10.0**power)
        parts.append(f'<path d="M{_LEFT} {y:.0f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{10**power:,}</text>'
        )
    for ranks in sorted({x for x, _ in points}):
        x, _ = place(ranks, 10.0**low)
        y = _HEIGHT - _BOTTOM + 16
        parts.append(f'<text x="{x:.0f}" y="{y}" text-anchor="middle">{ranks:,.0f}</text>')
    colour = -1
    for label, curve in enumerate(curves):
        colour += not curve.is_dashed
        stroke = _COLOURS[colour % len(_COLOURS)]
        path = "L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in curve.points)
        dash = ' stroke-dasharray="4 3"' if curve.is_dashed else ""
        parts.append(f'<path d="M{path}" fill="none" stroke="{stroke}" stroke-width="1.6"{dash}/>')
        y = _TOP + 14 + label * 16
        x1 = _WIDTH - _RIGHT + 12
        parts.append(f'<path d="M{x1} {y - 4}h22" stroke="{stroke}" stroke-width="1.6"{dash}/>')
        parts.append(f'<text x="{x1 + 28}" y="{y}">{html.escape(curve.name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
