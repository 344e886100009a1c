"""The parents and children of a node in the tree of hosts, and a substitute for a parent that is gone. Pure.

Node 0 is the root, and every node has up to 16 children: 17 hosts are 2 levels deep, 273 are 3, 4,369 are 4.
The root hears 16 links however large the job is, each with the rows of a sixteenth of it, merged.

    parent late        wait a moment, longer in larger jobs, then the grandparent, ... the root
    parent dead        the grandparent at once
    parent back        move there again, from whoever stood in

The ancestors of a node have lower numbers, so there is never a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from distdbg.hosts.finding import Address

_S: Final = 1_000_000_000
#: How long each ancestor is waited for that has not said where it is: where a thousand start at once, those
#: who are late are many, and all of them at the root are too many.
PATIENCE_NS: Final = _S
_PATIENCE_OF_EACH_NS: Final = _S // 50
#: How often somebody better is looked for.
RETURN_NS: Final = 10 * _S
_FIRST_PENALTY_NS: Final = _S // 2
_LONGEST_PENALTY_NS: Final = 30 * _S
#: There is nobody behind the root: it is tried often.
_ROOT_PENALTY_NS: Final = 2 * _S


FAN_IN: Final = 16


class ParentChoice:
    """Which ancestor to try, and when."""

    def __init__(self, node: int, now_ns: int, fan_in: int = FAN_IN, nodes: int = 1) -> None:
        self.ancestors = ancestors(node, fan_in)
        self._patience_ns = max(PATIENCE_NS, nodes * _PATIENCE_OF_EACH_NS)
        self._addresses: dict[int, Address] = {}
        self._barred: dict[int, tuple[int, int]] = {}  # until when, and for how long it was
        self._since_ns = now_ns
        self._attached: int | None = None

    def take(self, found: Mapping[int, Address]) -> None:
        """What the store says of them."""
        self._addresses.update(
            (node, address) for node, address in found.items() if node in self.ancestors
        )

    def address(self, node: int) -> Address:
        return self._addresses[node]

    def wanted(self) -> tuple[int, ...]:
        """The nodes whose addresses are still of use: those before the one that has been reached."""
        end = self.ancestors.index(self._attached) if self._attached is not None else None
        return tuple(node for node in self.ancestors[:end] if node not in self._addresses)

    def choose(self, now_ns: int) -> int | None:
        """The ancestor to connect to now; None: wait."""
        for place, node in enumerate(self.ancestors):
            if node == self._attached:
                return None
            if self._barred.get(node, (0, 0))[0] > now_ns:
                continue
            if node in self._addresses:
                return node
            if self._attached is None and now_ns - self._since_ns < self._patience_ns * (place + 1):
                return None
        return None

    def due_ns(self, now_ns: int) -> int:
        """When `choose` may say something else."""
        if self._attached is None:
            return now_ns + _S // 10
        if self._attached == self.ancestors[0]:
            return 2**63 - 1
        return now_ns + _S

    def on_attached(self, node: int, now_ns: int) -> None:
        self._attached = node
        for better in self.ancestors[: self.ancestors.index(node)]:
            until_ns, length_ns = self._barred.get(better, (0, _FIRST_PENALTY_NS))
            self._barred[better] = (max(until_ns, now_ns + RETURN_NS), length_ns)

    def on_failed(self, node: int, now_ns: int) -> None:
        """It could not be reached, or the link to it is gone; where it is may have changed."""
        longest_ns = _LONGEST_PENALTY_NS if node else _ROOT_PENALTY_NS
        length_ns = min(longest_ns, 2 * self._barred.get(node, (0, _FIRST_PENALTY_NS // 2))[1])
        self._barred[node] = (now_ns + length_ns, length_ns)
        self._addresses.pop(node, None)
        if node == self._attached:
            self._attached = None
            self._since_ns = now_ns


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
