"""Orders to all hosts: pause, abort, breakpoints, holds of the clock; numbered by the root. Pure.

An order goes up to the root, gets its number there, and comes down to all. Whoever attaches later gets
the orders that still hold: the last of pause and resume, the first abort, the last of arm and disarm,
a stop, the hosts that hold the clock. `continue` applies only to ranks that are in a debugger now.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

Do = Literal["pause", "resume", "abort", "arm", "disarm", "stop", "holds", "continue"]

MAX_TICKET: Final = 80
_SLOTS: Final = {
    "pause": "pause",
    "resume": "pause",
    "abort": "abort",
    "arm": "arm",
    "disarm": "arm",
    "stop": "stop",
    "holds": "holds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One order. `words` is what the page gets: the verdict of an abort, the rules of an arm; for
    a stop, whether to kill; of holds the hosts, of a continue the ranks."""

    ticket: str
    """Made by whoever ordered it, to know it again."""
    do: Do
    words: dict[str, Any]
    number: int = 0
    """Given by the root, from 1; 0: it did not answer, and this host is on its own."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: object) -> Order:
        """ValueError for what is none."""
        match found:
            case {
                "ticket": str() as ticket,
                "do": str() as do,
                "words": dict() as words,
                "number": int() as number,
            } if do in get_args(Do) and 0 < len(ticket) <= MAX_TICKET and number >= 0:
                return cls(ticket=ticket, do=do, words=words, number=number)  # type: ignore[arg-type]
        raise ValueError("not an order")


@dataclass(slots=True)
class UnnumberedOrder:
    """An order on its way up, which the root has not numbered yet."""

    order: Order
    since_ns: int
    again_ns: int
    is_given: bool = False


class OrderLog:
    """The orders that this node has seen."""

    def __init__(self) -> None:
        self.last = 0
        self._holding: dict[str, Order] = {}
        self._numbers: dict[str, int] = {}

    def number_of(self, ticket: str) -> int | None:
        return self._numbers.get(ticket)

    def give_number(self, order: Order) -> Order | None:
        """At the root; None for one that it has already."""
        if order.ticket in self._numbers:
            return None
        return Order(ticket=order.ticket, do=order.do, words=order.words, number=self.last + 1)

    def add(self, order: Order) -> bool:
        """Whether it is new here."""
        if order.number <= self.last:
            return False
        self.last = order.number
        self._numbers[order.ticket] = order.number
        while len(self._numbers) > 256:
            del self._numbers[next(iter(self._numbers))]
        slot = _SLOTS.get(order.do)
        if slot is not None and (slot != "abort" or slot not in self._holding):
            self._holding[slot] = order
        return True

    def catch_up(self, number: int) -> None:
        """At a root that was started again: what it gives numbers to comes after what others have seen."""
        self.last = max(self.last, number)

    def since(self, number: int) -> list[Order]:
        """What somebody who has seen `number` has missed and still holds."""
        missed = [order for order in self._holding.values() if order.number > number]
        return sorted(missed, key=lambda order: order.number)
