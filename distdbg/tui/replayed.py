"""Feeds of the past: what they can do beside `Feed`, and what they do alike."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Protocol, runtime_checkable

from distdbg.errors import UsageError
from distdbg.view.feed import Action
from distdbg.view.snapshot import LogRow


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


class PastFeed:
    """A feed whose job nobody can change any more."""

    can_change: Final = False
    address: Final = ""

    def do(self, action: Action, **words: object) -> str:
        raise UsageError(f"{action}: a replay cannot be changed")


class PastLog:
    """Lines that ranks have printed, in the order of time."""

    def __init__(self, lines: Sequence[LogRow]) -> None:
        self._lines = lines
        #: When each had come, never earlier than the one before it.
        self._times = list(accumulate((line.at or 0.0 for line in lines), max))
        self._shown: tuple[int, Sequence[LogRow]] = (0, ())

    def until(self, at: float) -> Sequence[LogRow]:
        """Those that had come; the same object as long as there are no others."""
        count = bisect_right(self._times, at)
        if count != self._shown[0]:
            self._shown = count, self._lines[:count]
        return self._shown[1]
