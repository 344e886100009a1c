"""Head sampling: the op numbers of a group to keep, known before any op is read.

All ranks of a host ask for about the same numbers, so what was found out for one is kept for the others.
A number that the budget has left out is kept too: the other ranks then skip it at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from distdbg.export.otel.ids import COLLECTIVE, Numbering
from distdbg.export.otel.sampling import (
    ALL,
    FULL,
    MAX_STRIDE,
    Sampler,
    is_kept_number,
    stride_at,
)

#: So many numbers of a group are remembered, what a ring holds: a rank further behind decides them anew.
_KEPT: Final = 1 << 15
_MAX_GROUPS: Final = 256
#: Numbers of a group that are known to be left out, the newest.
_MAX_LEFT_OUT: Final = 8192


@dataclass(slots=True)
class _Known:
    numbering: Numbering
    low: int
    """The first number that was decided."""
    high: int
    """The number after the last one that was decided."""
    kept: set[int] = field(default_factory=set)


class Head:
    """The collectives of all groups."""

    def __init__(self, run: str, start: int, sampler: Sampler) -> None:
        self._run, self._start = run, start
        self._sampler = sampler
        self._groups: dict[str, _Known] = {}
        self._left_out: dict[str, set[int]] = {}

    def leave_out(self, group: str, seq: int) -> None:
        """It was chosen, and the budget does not take it."""
        numbers = self._left_out.get(group)
        if numbers is None:
            if len(self._left_out) >= _MAX_GROUPS:
                del self._left_out[next(iter(self._left_out))]
            numbers = self._left_out[group] = set()
        numbers.add(seq)
        if len(numbers) > _MAX_LEFT_OUT:
            numbers.difference_update(sorted(numbers)[: _MAX_LEFT_OUT // 2])

    def keeps(self, group: str, seq: int) -> bool:
        """Whether one number is kept."""
        if seq in self._left_out.get(group, ()):
            return False
        if self._sampler.bound is None:
            return is_kept_number(seq)
        return seq in self._chosen(group, seq, seq + 1)

    def kept(self, group: str, low: int, high: int) -> Collection[int]:
        """The numbers from `low` up to and without `high` that are kept."""
        chosen, left_out = self._chosen(group, low, high), self._left_out.get(group)
        if not left_out:
            return chosen
        return [seq for seq in chosen if seq not in left_out]

    def _chosen(self, group: str, low: int, high: int) -> Collection[int]:
        bound = self._sampler.bound
        if bound is None:
            return _by_number(low, high)
        if bound <= 0 or bound >= ALL:
            return range(low, high) if bound else ()
        known = self._groups.get(group)
        if known is None or low > known.high or high < known.low or low < known.low - _KEPT:
            if len(self._groups) >= _MAX_GROUPS:
                self._groups.clear()
            known = _Known(Numbering(self._run, self._start, group, COLLECTIVE), low, low)
            self._groups[group] = known
        self._decide(known, min(low, known.low), known.low)
        self._decide(known, known.high, max(high, known.high))
        known.low, known.high = min(low, known.low), max(high, known.high)
        if known.high - known.low > 2 * _KEPT:
            known.low = known.high - _KEPT
            known.kept = {seq for seq in known.kept if seq >= known.low}
        return [seq for seq in range(low, high) if seq in known.kept]

    def _decide(self, known: _Known, low: int, high: int) -> None:
        keeps, trace_id = self._sampler.keeps, known.numbering.trace_id
        known.kept.update(seq for seq in range(low, high) if keeps(trace_id(seq), seq))


def _by_number(low: int, high: int) -> list[int]:
    """`sampling.is_kept_number` for many numbers."""
    found: list[int] = []
    low = max(low, 1)
    while low < high:
        stride = stride_at(low)
        until = high if stride == MAX_STRIDE else min(high, FULL * stride + 1)
        found.extend(range(-(-low // stride) * stride, until, stride))
        low = until
    return found
