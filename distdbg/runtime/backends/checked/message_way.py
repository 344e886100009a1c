"""MessageWay: by which communicator a message goes, where the two sides of one could mean different ones.

pair     one of the two ranks alone: nothing else has a place in its order
group    that of the group, with its collectives: NCCL carries out both in one order. A rank that receives
         between the second and the third collective what its peer sends after the third waits for a
         message that waits for it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MessageWay:
    """How one side sends."""

    route: str
    """'pair' or 'group'; '' where there is but one communicator, which keeps messages apart from the rest."""
    is_in_batch: bool = False
    """Whether it is in a batch."""
    after: int = 0
    """The collectives on the group's communicator before it, if it takes that one."""

    @classmethod
    def of(
        cls, find_route: Callable[[bool], str] | None, is_in_batch: bool, after: int
    ) -> MessageWay:
        """Return the way of a message that is called now; a backend with one way does not say which."""
        route = "" if find_route is None else find_route(is_in_batch)
        return cls(route, is_in_batch, after if route == "group" else 0)

    @property
    def is_in_order(self) -> bool:
        """Whether it shares a communicator, and so an order, with the group's collectives."""
        return self.route == "group"

    @property
    def words(self) -> dict[str, Any]:
        """What the other side is told."""
        if not self.route:
            return {}
        words = {"route": self.route, "batch": self.is_in_batch}
        return words | {"after": self.after} if self.is_in_order else words


def differing_routes(theirs: dict[str, Any], ours: dict[str, Any]) -> tuple[str, str] | None:
    """How each side calls its half, if they mean different communicators."""
    if theirs.get("route") == ours.get("route"):
        return None
    return _how(theirs), _how(ours)


def differing_orders(theirs: dict[str, Any], ours: dict[str, Any]) -> tuple[str, str] | None:
    """When each side calls its half, if that is not in the order of the communicator they share."""
    if theirs.get("after") == ours.get("after"):
        return None
    return _when(theirs), _when(ours)


def _how(words: dict[str, Any]) -> str:
    return "in a batch" if words.get("batch") else "alone"


def _when(words: dict[str, Any]) -> str:
    count = words.get("after")
    return f"after {count} collective{'' if count == 1 else 's'}"
