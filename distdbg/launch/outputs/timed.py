"""The lines of one kept file with the times they have: by the launcher's index, and by their own words.

The index tells when a line had come at the latest, to some tenths of a second; a time that the line begins
with is better, as long as the two agree. A line without either came with the one before it. Times never go
back within a file. Logging libraries begin lines with:

    2026-11-20 23:54:44,793 INFO ...        2026-11-20T23:54:44.793Z ...        [2026-11-20 23:54:44] ...
    [E1120 23:54:44.793142038 ProcessGroupNCCL.cpp:629] ...                     [rank0]:[W1120 23:54:...
"""

from __future__ import annotations

import calendar
import os
import re
from typing import Final, NamedTuple

from distdbg.launch.outputs.kept import KeptFile
from distdbg.launch.outputs.merged import OutputLine
from distdbg.record.line_times import read_line_times

_CHUNK_NBYTES: Final = 1 << 16
_MAX_LINE_NBYTES: Final = 1 << 20
#: How much of a file without an index is searched for a line that tells its time.
_SEARCHED_NBYTES: Final = 1 << 18
#: A look at a file and a line's own time are from the same clock, but not of one moment.
_SLACK_NS: Final = 50_000_000
#: Where no line of a job has a time, a line counts as so much: equal ones are found fifty lines on.
LINE_NS: Final = 20_000_000


_ISO: Final = re.compile(
    r"[\[(]?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)
_GLOG: Final = re.compile(
    r"(?:\[\w+\]:? ?)?\[?[DIVWEFC](\d\d)(\d\d) +(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
)
_YEAR_NS: Final = 365 * 86_400 * 10**9
_ZONE_NS: Final = 900 * 10**9


class TimedFile:
    """Reads a file from its beginning, also while it grows."""

    def __init__(self, file: KeptFile, *, local_zone_ns: int) -> None:
        """`local_zone_ns`: local time minus UTC, for times without a zone where nothing tells it."""
        self.file = file
        self.rank = file.rank
        self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        self._times = file.times
        self._offset = 0
        self._rest = b""
        self._rest_at = 0
        self._local_zone_ns = local_zone_ns
        self._zone_ns: int | None = None
        self._time_ns = 0
        self._count = 0
        #: For a file without times: it is stretched over this much.
        self.span: tuple[int, int] | None = None
        is_empty = os.fstat(self._fd).st_size == 0
        self.is_timed = is_empty or self._times is not None or self._has_stamp()
        self._is_followed = False
        if self._times is None and self.is_timed:
            self._time_ns = self.first_ns() or 0

    def close(self) -> None:
        os.close(self._fd)

    @property
    def offset(self) -> int:
        """Up to where its lines have been read."""
        return self._rest_at

    def begin_at(self, offset: int) -> None:
        """Pass over what is before the first line that begins at `offset` or later."""
        self._rest, self._offset, self._rest_at = b"", offset, offset
        if offset <= 0 or os.pread(self._fd, 1, offset - 1) == b"\n":
            return
        found = os.pread(self._fd, _MAX_LINE_NBYTES, offset).find(b"\n")
        if found >= 0:
            self._offset = self._rest_at = offset + found + 1

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def mtime_ns(self) -> int:
        return os.fstat(self._fd).st_mtime_ns

    def first_ns(self) -> int | None:
        """When the first line came, where that is known."""
        if self._times is not None and self._times.wall_ns:
            return self._times.wall_ns[0]
        for text in self._head():
            stamp = read_stamp(text, self.mtime_ns())
            if stamp is not None:
                return stamp.ns - (0 if stamp.has_zone else self._local_zone_ns)
        return None

    def follow(self) -> None:
        """The file is being written: what the index does not know yet came when it is read."""
        self.is_timed = self._is_followed = True
        if self._times is None and (times := read_line_times(self.file.path)):
            self._times = times
            self.rank = times.rank

    def read(self, *, is_over: bool) -> list[OutputLine] | None:
        """Some lines; [] when there are none now, None when all have been read and the file is over."""
        data = os.pread(self._fd, _CHUNK_NBYTES, self._offset)
        self._offset += len(data)
        pieces = (self._rest + data).split(b"\n")
        self._rest = pieces.pop()
        lines = []
        for piece in pieces:
            self._rest_at += len(piece) + 1
            lines.append(self._line(piece, self._rest_at))
        is_last = is_over and not data
        if self._rest and (is_last or len(self._rest) > _MAX_LINE_NBYTES):
            self._rest_at += len(self._rest)
            lines.append(self._line(self._rest, self._rest_at))
            self._rest = b""
        return lines if lines or not is_last else None

    def _line(self, data: bytes, end: int) -> OutputLine:
        text = data.decode(errors="backslashreplace")
        self._count += 1
        self._time_ns = max(self._time_ns, self._time_of(text, end))
        return OutputLine(self._time_ns, self.rank, self.file.stream, text)

    def _time_of(self, text: str, end: int) -> int:
        if not self.is_timed:
            if self.span is None:
                return self._count * LINE_NS
            first_ns, last_ns = self.span
            return first_ns + (last_ns - first_ns) * end // max(end, os.fstat(self._fd).st_size)
        seen_ns = None
        if self._times is not None:
            seen_ns = self._times.time_of(end)
        if seen_ns is None and (self._times is not None or self._is_followed):
            seen_ns = self.mtime_ns()  # the last look was before it
        stamp = read_stamp(text, seen_ns or self.mtime_ns())
        if stamp is None:
            return seen_ns or 0
        own_ns = stamp.ns
        if not stamp.has_zone:
            if self._zone_ns is None:
                known = seen_ns is not None
                self._zone_ns = zone_of(own_ns, seen_ns or 0) if known else -self._local_zone_ns
            own_ns += self._zone_ns
        is_likely = seen_ns is None or own_ns <= seen_ns + _SLACK_NS
        return own_ns if is_likely else seen_ns or 0

    def _has_stamp(self) -> bool:
        about_ns = self.mtime_ns()
        return any(read_stamp(text, about_ns) is not None for text in self._head())

    def _head(self) -> list[str]:
        data = os.pread(self._fd, _SEARCHED_NBYTES, 0)
        return [line.decode(errors="replace") for line in data.split(b"\n")]


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
