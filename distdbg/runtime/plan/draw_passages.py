"""Draws the messages of a plan over time, as SVG: a line for each rank, an arrow for each message."""

from __future__ import annotations

import html
from collections.abc import Sequence

from distdbg.runtime.plan.timing import MessageInTransit, Timing

#: More lines cannot be distinguished, and more arrows make a file nobody opens.
MAX_RANKS = 64
MAX_PASSAGES = 5000

_WIDTH, _LEFT, _TOP, _LINE = 960, 70, 46, 16


def draw_passages(timing: Timing, hosts: Sequence[Sequence[int]], title: str) -> str:
    """One document; of large groups the first ranks, and what they send and receive."""
    ranks = [rank for host in hosts for rank in host][:MAX_RANKS]
    rows: dict[int, float] = {}
    y = float(_TOP)
    begins = {host[0] for host in hosts}
    for rank in ranks:
        # A gap parts the hosts.
        y += 8 if rank in begins and rows else 0
        rows[rank] = y
        y += _LINE
    height = y + 30
    total_s = max(timing.total_s, 1e-9)

    def x(seconds: float) -> float:
        return _LEFT + seconds / total_s * (_WIDTH - _LEFT - 30)

    shown = [p for p in timing.passages if p.source in rows and p.to in rows][:MAX_PASSAGES]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        f'font-family="sans-serif" font-size="11" fill="#444">',
        f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#fff"/>',
        '<defs><marker id="a" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="5" markerHeight="5" '
        'orient="auto"><path d="M0 0L6 3L0 6z" fill="#2166ac"/></marker></defs>',
        f'<text x="10" y="20" font-size="13">{html.escape(title)}</text>',
    ]
    for rank, at in rows.items():
        parts.append(f'<text x="10" y="{at + 4:.0f}">rank {rank}</text>')
        end = x(timing.ends_s.get(rank, total_s))
        parts.append(f'<path d="M{_LEFT} {at:.0f}H{end:.1f}" stroke="#bbb"/>')
    parts += [_arrow(p, x(p.begin_s), rows[p.source], x(p.end_s), rows[p.to]) for p in shown]
    for tenth in range(0, 11, 2):
        seconds = total_s * tenth / 10
        parts.append(
            f'<text x="{x(seconds):.0f}" y="{height - 8:.0f}" text-anchor="middle">'
            f"{seconds * 1e6:,.0f} us</text>"
        )
    left = len(timing.passages) - len(shown)
    if left:
        parts.append(f'<text x="10" y="36">{left:,} messages are not drawn</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _arrow(passage: MessageInTransit, x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<path d="M{x1:.1f} {y1:.0f}L{x2:.1f} {y2:.0f}" stroke="#2166ac" stroke-opacity=".6" '
        f'marker-end="url(#a)"><title>{passage.nbytes:,} B from rank {passage.source} to rank '
        f"{passage.to}</title></path>"
    )
