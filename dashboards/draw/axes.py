"""Scales and ticks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_STEPS_S: Final = (
    1,
    2,
    5,
    10,
    15,
    20,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    21600,
    43200,
    86400,
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` on pixels from `begin` to `end`, which may run backwards."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False
    """`low` is then above 0."""

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        share = (value - low) / (high - low or 1.0)
        return self.begin + share * (self.end - self.begin)

    def inside(self, value: float) -> float:
        """The same, and not beyond either end."""
        return self.at(min(max(value, self.low), self.high))


@dataclass(frozen=True, slots=True)
class Rounding:
    """Which steps between ticks are round."""

    base: int = 10
    """2 for bytes: 1, 2, 4 ... 1024."""
    least: float = 0.0
    """1 where there are no decimals."""

    def step(self, wanted: float) -> float:
        """The least round step that is not less than `wanted`."""
        if wanted <= 0 or not math.isfinite(wanted):
            return max(self.least, 1.0)
        wanted = max(wanted, self.least)
        if self.base == 2:
            return 2.0 ** math.ceil(math.log2(wanted) - 1e-9)
        power = 10.0 ** math.floor(math.log10(wanted))
        factors = (1, 2, 2.5, 5, 10) if self.least == 0 else (1, 2, 5, 10)
        return next(it * power for it in factors if it * power >= wanted * 0.999)


def nice(
    values: Iterable[float], low: float | None, high: float | None, rounding: Rounding
) -> tuple[float, float]:
    """What an axis for these values spans."""
    known = [value for value in values if math.isfinite(value)]
    bottom = low if low is not None else min(known, default=0.0)
    top = high if high is not None else max(known, default=1.0)
    if top <= bottom:
        top = bottom + (abs(bottom) or 1.0)
    if high is None:
        step = rounding.step((top - bottom) / 4)
        top = math.ceil(top / step - 1e-9) * step
    return bottom, top


def ticks(low: float, high: float, most: int, rounding: Rounding) -> list[float]:
    """Round numbers from `low` to `high`."""
    step = rounding.step((high - low) / max(most, 1))
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def nice_log(values: Iterable[float]) -> tuple[float, float]:
    """What an axis of powers of ten spans; what is not above 0 has no place on it."""
    known = [value for value in values if math.isfinite(value) and value > 0]
    if not known:
        return 1.0, 10.0
    low = math.floor(math.log10(min(known)) + 1e-9)
    high = math.ceil(math.log10(max(known)) - 1e-9)
    return 10.0**low, 10.0 ** max(high, low + 1)


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten, with what is between them where there is room."""
    first, last = round(math.log10(low)), round(math.log10(high))
    every = -(-(last - first + 1) // max(most, 2))
    between = (1, 2, 5) if 3 * (last - first) + 1 <= most else (1,)
    found = [m * 10.0**n for n in range(first, last + 1, every) for m in between]
    return [it for it in found if it <= high * 1.001]


def time_ticks(begin_s: float, end_s: float, most: int) -> list[tuple[float, str]]:
    """Round moments with what is written at each."""
    wanted = (end_s - begin_s) / max(most, 1)
    # Two labels at the least, where the time is long enough.
    steps = [it for it in _STEPS_S if end_s // it - -(-begin_s // it) >= 1] or [_STEPS_S[0]]
    step = next((it for it in steps if it >= wanted), steps[-1])
    form = "%H:%M:%S" if step < 60 else "%H:%M"
    first = math.ceil(begin_s / step)
    moments = [n * step for n in range(first, math.floor(end_s / step) + 1)]
    return [(it, datetime.fromtimestamp(it, UTC).strftime(form)) for it in moments]
