"""Durations, ages and sizes for people, written in one way everywhere. Pure.

JSON, CSV and metrics have plain numbers with their unit in the name instead.
"""

from __future__ import annotations

import time
from typing import Final

#: Earlier than any run: a clock that counts from a boot, or a number that is no time.
_FIRST_NS: Final = 946_684_800 * 10**9


_SHORT: Final = ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (0.0995, 1e3, "ms"))
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def duration_text(seconds: float) -> str:
    """'250 ns', '33.6 ms', '0.35 s', '4.7 s', '12 s', '3 min 20 s', '1 h 5 min', '2 d 3 h'."""
    seconds = max(seconds, 0.0)
    for limit, factor, unit in _SHORT:
        if seconds < limit:
            value = seconds * factor
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    minutes = whole // 60
    if minutes < 24 * 60:
        return _two(minutes // 60, "h", minutes % 60, "min")
    return _two(minutes // 1440, "d", minutes % 1440 // 60, "h")


def age_text(seconds: float) -> str:
    """'12 s ago'."""
    return f"{duration_text(seconds)} ago"


def nbytes_text(nbytes: float) -> str:
    """'8 B', '4.0 KiB', '1.4 GiB'."""
    value = float(nbytes)
    if value < 1023.5:
        return f"{value:.0f} B"
    for unit in _UNITS:
        value /= 1024
        if value < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{value:.1f} {unit}"


def _two(many: int, unit: str, rest: int, small: str) -> str:
    return f"{many} {unit} {rest} {small}" if rest else f"{many} {unit}"


def local_time_text(wall_ns: int | None) -> str:
    """'2026-11-22T04:10:00', local time; '' for what is no time of a run."""
    if wall_ns is None or wall_ns < _FIRST_NS:
        return ""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(wall_ns // 10**9))
    except (OSError, OverflowError, ValueError):
        return ""
