"""A wall-clock time for people, to be looked up in `dmesg -T` or a scheduler's log; of this host's zone."""

from __future__ import annotations

import time
from typing import Final

#: Earlier than any run: a clock that counts from a boot, or a number that is no time.
_FIRST_NS: Final = 946_684_800 * 10**9


def local_time_text(wall_ns: int | None) -> str:
    """'2026-11-22T04:10:00', local time; '' for what is no time of a run."""
    if wall_ns is None or wall_ns < _FIRST_NS:
        return ""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(wall_ns // 10**9))
    except (OSError, OverflowError, ValueError):
        return ""
