"""Timeouts as users give them (timedelta or seconds), deadlines as everything below takes them."""

from __future__ import annotations

import math
from datetime import timedelta

from distdbg.control.clock import JobClock
from distdbg.errors import UsageError, WrongTypeError

Timeout = timedelta | float

NO_DEADLINE_NS = 2**63 - 1


def to_seconds(timeout: Timeout) -> float:
    """Turn a timeout into seconds; infinity is allowed, negative and NaN are not."""
    if isinstance(timeout, timedelta):
        seconds = timeout.total_seconds()
    elif isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
        seconds = float(timeout)
    else:
        raise WrongTypeError(f"a timeout is a timedelta or seconds, not {type(timeout).__name__}")
    if math.isnan(seconds) or seconds < 0:
        raise UsageError(f"a timeout cannot be {seconds} s")
    return seconds


def to_ns(seconds: float) -> int:
    """Turn seconds into nanoseconds that fit 64 bits."""
    return min(int(seconds * 1e9), NO_DEADLINE_NS) if seconds < 1e10 else NO_DEADLINE_NS


def deadline_after(seconds: float, clock: JobClock) -> int:
    """The point of job time that lies `seconds` ahead."""
    return min(clock.now_ns() + to_ns(seconds), NO_DEADLINE_NS)
