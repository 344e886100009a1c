"""The cycle of a deadlock with its waiters, for a first line. Pure.

all wait in recv at ring.py:5: 0 <- 3 <- 2 <- 1 <- 0        each receives from the next
all wait in send: 0 -> 1 -> 0                               each sends to the next
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.finding import Edge

#: Two that wait for each other are no ring.
_FEWEST: Final = 3
_MOST_RING: Final = 60
_ARROWS: Final = {"recv": " <- ", "send": " -> "}


def uniform_cycle(edges: Sequence[Edge], most: int) -> str:
    """In at most so many letters; '' where the ranks do not all wait in the same way, each for one other."""
    kinds = {edge.text.partition(" ")[0] for edge in edges}
    if len(kinds) != 1 or any(len(edge.on) != 1 or edge.is_any for edge in edges):
        return ""
    kind = kinds.pop()
    ranks = _around({edge.rank: edge.on[0] for edge in edges})
    if kind not in _ARROWS or len(ranks) != len(edges) or len(ranks) < 2:
        return ""
    sites = {edge.site.partition(" (")[0] for edge in edges}
    at = f" at {sites.pop()}" if len(sites) == 1 and "" not in sites else ""
    head = f"all wait in {kind}{at}: "
    return head + _chain(ranks, _ARROWS[kind], most - len(head))


def ring_of(edges: Sequence[Edge]) -> str:
    """'0 -> 3 -> 2 -> 1 -> 0' where each of three or more waits for its neighbor, all on one side; else ''.

    Whether it sends or receives: in a ring somebody has to do the other one first.
    """
    if len(edges) < _FEWEST or any(len(edge.on) != 1 or edge.is_any for edge in edges):
        return ""
    next_of = {edge.rank: edge.on[0] for edge in edges}
    ranks = _around(next_of)
    steps = {(on - rank) % len(edges) for rank, on in next_of.items()}
    is_whole = sorted(next_of) == list(range(len(edges)))
    if len(ranks) != len(edges) or not is_whole or steps not in ({1}, {len(edges) - 1}):
        return ""
    return _chain(ranks, " -> ", _MOST_RING)


def _around(next_of: dict[int, int]) -> list[int]:
    """From the smallest rank on, until one comes again."""
    ranks: list[int] = []
    seen: set[int] = set()
    at = min(next_of)
    while at in next_of and at not in seen:
        ranks.append(at)
        seen.add(at)
        at = next_of[at]
    return ranks if at == min(next_of) else []


def _chain(ranks: Sequence[int], arrow: str, most: int) -> str:
    """'0 <- 3 <- 2 <- 0'; with '...' for those that there is no room for."""
    names = [str(rank) for rank in ranks]
    shown = len(names)
    while True:
        gap = [] if shown == len(names) else ["..."]
        text = arrow.join([*names[:shown], *gap, names[0]])
        if len(text) <= most or shown == 1:
            return text
        shown -= 1
