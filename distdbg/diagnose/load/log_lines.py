"""Lines of logs, with what their beginnings say: rank, host, time. Any bytes are a log.

    [rank3]:[E1120 23:54:44.793142038 ProcessGroupNCCL.cpp:632] text       torch's own logger
    [default3]:text    [rank3]: text    [rank 3] text    [1,3]<stderr>:text    3: text      launchers
    [ranks 0-2,5] text                                                                      ours, of several
    2026-11-20 23:54:44,793 text    Nov 20 23:54:44 n04 kernel: text       everybody else

Lines are cut at 4 KiB, so whatever is looked for in one takes bounded time. Of a file that is larger than
anybody reads, the beginning and the end are read.
"""

from __future__ import annotations

import calendar
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from distdbg.record.rank_list import read_ranks
from distdbg.record.regular_file import open_regular

MAX_LINE_NBYTES: Final = 4096
#: Bytes read of a file, from its beginning and again up to its end.
MAX_HALF_NBYTES: Final = 1 << 28

_SECOND: Final = 10**9
_ANSI: Final = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)

#: Tried one after the other until none of them fits; the order is that of nesting in practice.
_PREFIXES: Final = (
    re.compile(r"\[rank ?(?P<rank>\d{1,7})\]:? ?"),
    re.compile(r"\[[A-Za-z_]{1,32}(?P<local>\d{1,5})\]:? ?"),
    re.compile(r"\[\d{1,4},(?P<rank>\d{1,7})\]<std(?:err|out)>:? ?"),
    re.compile(r"\(rank (?P<rank>\d{1,7})\) "),
    re.compile(r"(?P<rank>\d{1,5}): (?=[^\[\s]|\[rank|\[[EWIF]\d|\[PG)"),
    # glog: the year is that of whoever wrote the file
    re.compile(
        r"\[?[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?"
        r"(?: {1,4}\d{1,8})?(?: (?P<at>[\w./-]{1,128}:\d{1,6})\]| )? ?"
    ),
    re.compile(
        r"\[?(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<clock>\d\d:\d\d:\d\d)"
        r"(?:[.,:](?P<part>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?\]?[ :,]{0,3}"
    ),
    re.compile(
        r"\[?(?:[A-Z][a-z]{2} )?(?P<word>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)"
        r"(?:\.(?P<part>\d{1,9}))?(?: (?P<year>\d{4}))?\]? ?"
    ),
    re.compile(
        r"(?P<host>[A-Za-z0-9][\w.-]{0,63}) (?:kernel|slurmstepd|systemd)(?:\[\d{1,8}\])?: "
    ),
    re.compile(r"\[ {0,8}\d{1,9}\.\d{6}\] "),  # the kernel's clock since boot
)
_MAX_PREFIXES: Final = 6
#: '[ranks 0-2,5] text', as `distdbg run` prints what several ranks have said.
_FOLDED: Final = re.compile(r"\[ranks ([\d,-]{1,512})\]")
#: A line of a few bytes must not become very many.
_MAX_FOLDED: Final = 64


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """One line without its prefixes."""

    text: str
    source: str
    """'stderr.log:88'."""
    rank: int | None = None
    """As the line itself says, or the place of its file."""
    local_rank: int | None = None
    host: str = ""
    wall_ns: int | None = None
    stream: object = None
    """Equal for lines that one process wrote."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What the place of a file says of all its lines."""

    name: str
    rank: int | None = None
    local_rank: int | None = None
    year: int = 1970


_LAYOUT: Final = re.compile(r"attempt_(\d{1,6})/(\d{1,7})/[^/]+$")
_RANK_FILE: Final = re.compile(r"rank[_\-.]?(\d{1,7})(?!\d)", re.IGNORECASE)


def origin_of(path: Path, root: Path) -> Origin:
    """What the name of a file says: torchrun's folders have the local rank."""
    try:
        name = str(path.relative_to(root)) if path != root else path.name
    except ValueError:
        name = path.name
    posix = path.as_posix()
    found = _LAYOUT.search(posix)
    named = _RANK_FILE.search(path.name)
    try:
        year = time.gmtime(path.stat().st_mtime).tm_year
    except (OSError, ValueError, OverflowError):
        year = 1970
    return Origin(
        name=name,
        rank=int(named[1]) if named and not found else None,
        local_rank=int(found[2]) if found else None,
        year=year,
    )


def attempt_of(path: Path) -> int | None:
    """Which start of the job the file is of, where its folder says so."""
    found = _LAYOUT.search(path.as_posix())
    return int(found[1]) if found else None


def read_lines(path: Path, origin: Origin) -> Iterator[LoggedLine]:
    """All lines; OSError when the file cannot be read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        number = 0
        for number, data in enumerate(_cut_lines(file, MAX_HALF_NBYTES), start=1):
            yield from to_lines(data, origin, number)
        if size > 2 * MAX_HALF_NBYTES:
            file.seek(size - MAX_HALF_NBYTES)
        if size > MAX_HALF_NBYTES:
            for data in _cut_lines(file, MAX_HALF_NBYTES):
                number += 1
                yield from to_lines(data, origin, number)


def _cut_lines(file: BinaryIO, most: int) -> Iterator[bytes]:
    """Lines of at most 4 KiB; what is longer is passed over."""
    left = most
    while left > 0:
        data = file.readline(MAX_LINE_NBYTES)
        if not data:
            return
        left -= len(data)
        yield data
        while len(data) == MAX_LINE_NBYTES and not data.endswith(b"\n") and left > 0:
            data = file.readline(MAX_LINE_NBYTES)
            left -= len(data)


def to_lines(data: bytes, origin: Origin, number: int) -> Iterator[LoggedLine]:
    """The line, or where the launcher has folded those of several ranks, that of each."""
    text = data.decode("utf-8", "replace")
    found = _FOLDED.match(text)
    try:
        ranks = read_ranks(found[1]) if found else []
    except ValueError:
        ranks = []
    if found is None or not ranks:
        yield to_line(text, origin, number)
        return
    for rank in ranks[:_MAX_FOLDED]:
        yield to_line(f"[rank {rank}]{text[found.end() :]}", origin, number)


def to_line(text: str, origin: Origin, number: int) -> LoggedLine:
    """Take the prefixes off a line."""
    text = text.rstrip("\r\n")
    if "\r" in text:
        text = text.rpartition("\r")[2]  # a progress bar wrote over itself
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    rank, local, host = origin.rank, origin.local_rank, ""
    wall_ns = None
    at = 0
    for _ in range(_MAX_PREFIXES):
        found = next((m for p in _PREFIXES if (m := p.match(text, at)) is not None), None)
        if found is None:
            break
        words = found.groupdict()
        if words.get("rank"):
            rank = int(words["rank"])
        if words.get("local"):
            local = int(words["local"])
        host = words.get("host") or host
        if words.get("clock"):
            wall_ns = _wall_ns(words, origin.year) or wall_ns
        at = found.end()
    return LoggedLine(
        text[at:], f"{origin.name}:{number}", rank, local, host, wall_ns, (origin.name, rank, local)
    )


def _wall_ns(words: dict[str, str | None], year: int) -> int | None:
    """Seconds of the day as if they were UTC: one job's lines compare, and no more is needed."""
    word = words.get("word")
    if word is not None and word not in _MONTHS:
        return None
    month = _MONTHS.index(word) + 1 if word else int(words.get("month") or 0)
    day = int(words.get("day") or 0)
    hour, minute, second = (int(part) for part in (words.get("clock") or "0:0:0").split(":"))
    given = int(words.get("year") or year)
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    seconds = calendar.timegm((given, month, day, hour, minute, second))
    return seconds * _SECOND + int((words.get("part") or "0").ljust(9, "0"))
