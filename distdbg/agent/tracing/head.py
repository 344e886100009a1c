"""Which numbers of a group the head keeps, known before any op of them is looked at.

All ranks of a host ask for about the same numbers, so what was found out for one is kept for the others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from distdbg.export.otel.ids import COLLECTIVE, Numbering
from distdbg.export.otel.sampling import ALL, FULL, MOST_STRIDE, Sampler, stride_at

#: Ranks of one group are not further apart than what a ring holds, as a rule; else it is found out again.
_KEPT: Final = 1 << 15
_MOST_GROUPS: Final = 256


@dataclass(slots=True)
class _Known:
    numbering: Numbering
    low: int
    """The first number that was decided, and the one after the last."""
    high: int
    kept: set[int] = field(default_factory=set)


class Head:
    """The collectives of all groups."""

    def __init__(self, run: str, start: int, sampler: Sampler) -> None:
        self._run, self._start = run, start
        self._sampler = sampler
        self._groups: dict[str, _Known] = {}

    def kept(self, group: str, low: int, high: int) -> Collection[int]:
        """The numbers from `low` up to and without `high` that are kept."""
        bound = self._sampler.bound
        if bound is None:
            return _by_number(low, high)
        if bound <= 0 or bound >= ALL:
            return range(low, high) if bound else ()
        known = self._groups.get(group)
        if known is None or low > known.high or high < known.low or low < known.low - _KEPT:
            if len(self._groups) >= _MOST_GROUPS:
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
        until = high if stride == MOST_STRIDE else min(high, FULL * stride + 1)
        found.extend(range(-(-low // stride) * stride, until, stride))
        low = until
    return found
