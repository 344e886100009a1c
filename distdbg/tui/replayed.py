"""Replayed: what a feed of the past can do beside `Feed`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, order=True)
class ReplayMark:
    """A moment that is worth stopping at; seconds of unix time."""

    at: float
    what: str
    is_fault: bool = True


@runtime_checkable
class TimedFeed(Protocol):
    """A feed that has `span()`, and knows what happened when."""

    def stops(self) -> Sequence[ReplayMark]:
        """What is worth stopping at, in order; more of it may come."""
        ...

    def next_moment(self, at: float, by: int) -> float | None:
        """When the next thing happens after `at`; `by` -1: the last thing before. None: nothing does."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether all that is wanted of the moment is there."""
        ...

    def request_verdict(self) -> None:
        """Diagnose the moment that is shown, whatever it takes."""
        ...
