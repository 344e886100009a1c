"""The elements of a picture. Each is a line of SVG; a picture is a list of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from dashboards.draw.look import TEXT

#: Of a letter, in parts of its height.
_WIDTH = 0.53


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the picture."""

    x: float
    y: float
    w: float
    h: float

    def inner(self, left: float, top: float, right: float, bottom: float) -> Box:
        return Box(self.x + left, self.y + top, self.w - left - right, self.h - top - bottom)

    @property
    def right(self) -> float:
        return self.x + self.w

    @property
    def bottom(self) -> float:
        return self.y + self.h


def rectangle(box: Box, fill: str, *, edge: str = "", radius: float = 0, opacity: float = 1) -> str:
    """What is as usual is left out: a heatmap has thousands."""
    more = f' rx="{radius:g}"' if radius else ""
    more += f' stroke="{edge}"' if edge else ""
    more += f' fill-opacity="{opacity:g}"' if opacity != 1 else ""
    return (
        f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(max(box.w, 0))}"'
        f' height="{_n(max(box.h, 0))}" fill="{fill}"{more}/>'
    )


def words(
    x: float,
    y: float,
    text: str,
    *,
    size: float = 12,
    color: str = TEXT,
    anchor: str = "start",
    weight: int = 400,
    mono: bool = False,
) -> str:
    """One line of text whose middle is at `y`."""
    family = ' font-family="monospace"' if mono else ""
    return (
        f'<text x="{x:.1f}" y="{y + 0.35 * size:.1f}" font-size="{size:g}" fill="{color}"'
        f' text-anchor="{anchor}" font-weight="{weight}"{family}>{escape(text)}</text>'
    )


def line(
    x1: float, y1: float, x2: float, y2: float, color: str, *, width: float = 1, dashes: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        f' stroke="{color}" stroke-width="{width:g}"{dashed}/>'
    )


def polyline(points: Sequence[tuple[float, float]], color: str, *, width: float = 1.2) -> str:
    if len(points) == 1:
        x, y = points[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{color}"/>'
    return (
        f'<polyline points="{_pairs(points)}" fill="none" stroke="{color}"'
        f' stroke-width="{width:g}" stroke-linejoin="round"/>'
    )


def polygon(points: Sequence[tuple[float, float]], color: str, opacity: float) -> str:
    return f'<polygon points="{_pairs(points)}" fill="{color}" fill-opacity="{opacity:g}"/>'


def clipped(name: str, box: Box, inside: Iterable[str]) -> list[str]:
    """What does not leave `box`."""
    area = rectangle(box, "none")
    return [
        f'<clipPath id="{name}">{area}</clipPath>',
        f'<g clip-path="url(#{name})">',
        *inside,
        "</g>",
    ]


def fitting(text: str, width: float, size: float) -> str:
    """As much of a text as has room."""
    most = int(width / (size * _WIDTH))
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def width_of(text: str, size: float) -> float:
    return len(text) * size * _WIDTH


def _pairs(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
