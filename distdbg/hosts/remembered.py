"""What a node remembers of a child, and of an order that is on its way up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distdbg.hosts.orders import Order


@dataclass(slots=True)
class Child:
    """A link downwards."""

    nbytes_s: int = 0
    rows_s: int = 0
    period_ns: int = 0
    counts: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class UnnumberedOrder:
    """An order that the root has not numbered yet."""

    order: Order
    since_ns: int
    again_ns: int
    is_given: bool = False
