"""Times that lines begin with, as logging libraries write them. Pure.

2026-11-20 23:54:44,793 INFO ...        2026-11-20T23:54:44.793Z ...        [2026-11-20 23:54:44] ...
[E1120 23:54:44.793142038 ProcessGroupNCCL.cpp:629] ...                     [rank0]:[W1120 23:54:...
"""

from __future__ import annotations

import calendar
import re
from typing import Final, NamedTuple

_ISO: Final = re.compile(
    r"[\[(]?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)
_GLOG: Final = re.compile(
    r"(?:\[\w+\]:? ?)?\[?[DIVWEFC](\d\d)(\d\d) +(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
)
_YEAR_NS: Final = 365 * 86_400 * 10**9
_ZONE_NS: Final = 900 * 10**9


class Stamp(NamedTuple):
    """A time as it is written; without a zone, as if it were UTC."""

    ns: int
    has_zone: bool


def read_stamp(line: str, about_ns: int) -> Stamp | None:
    """The time that a line begins with. `about_ns`: tells the year, where none is written."""
    # Most lines have none, and most of those are told by their beginning.
    head = line[:24]
    if not any(c.isdigit() for c in head):
        return None
    if found := _ISO.match(line):
        *date, fraction, zone = found.groups()
        ns = _to_ns([int(part) for part in date], fraction)
        if ns is None:
            return None
        return Stamp(ns - _zone_ns(zone), zone is not None)
    if found := _GLOG.match(line):
        *parts, fraction = found.groups()
        numbers = [int(part) for part in parts]
        year = 1970 + about_ns // _YEAR_NS  # or so
        near = [_to_ns([y, *numbers], fraction) for y in (year - 1, year, year + 1)]
        fitting = [ns for ns in near if ns is not None]
        if fitting:
            return Stamp(min(fitting, key=lambda ns: abs(ns - about_ns)), False)
    return None


def zone_of(written_ns: int, seen_ns: int) -> int:
    """What is to be added to times without a zone, from one of them and when it was seen at the latest.

    Zones are whole quarters of an hour apart, and lines come sooner than that.
    """
    return round((seen_ns - written_ns) / _ZONE_NS) * _ZONE_NS


def _to_ns(numbers: list[int], fraction: str | None) -> int | None:
    year, month, day, hour, minute, second = numbers
    is_date = 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year or 1, month)[1]
    if not (1970 <= year < 2200 and is_date and hour < 24 and minute < 60 and second <= 60):
        return None
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    return seconds * 10**9 + int((fraction or "").ljust(9, "0"))


def _zone_ns(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (-minutes if zone[0] == "-" else minutes) * 60 * 10**9
