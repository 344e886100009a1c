"""The shape of the tree: node 0 is the root, and every node has up to 16 children. Pure.

16 children: 17 hosts are 2 levels deep, 273 are 3, 4,369 are 4. The root hears 16 links however
large the job is, and each of them brings the rows of a sixteenth of it, merged.
"""

from __future__ import annotations

from typing import Final

FAN_IN: Final = 16


def parent(node: int, fan_in: int = FAN_IN) -> int:
    """The node that this one reports to; -1 for the root."""
    return (node - 1) // fan_in if node else -1


def ancestors(node: int, fan_in: int = FAN_IN) -> tuple[int, ...]:
    """Parent, grandparent, ... root: who may stand in for whom."""
    found = []
    while node:
        node = parent(node, fan_in)
        found.append(node)
    return tuple(found)


def children(node: int, nodes: int, fan_in: int = FAN_IN) -> range:
    """The nodes that report to this one when nobody is missing."""
    first = node * fan_in + 1
    return range(min(first, nodes), min(first + fan_in, nodes))
