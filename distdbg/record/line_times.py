"""When the lines of a log file were written: an index beside it, kept by the process that keeps the file.

A rank writes its output into a plain file, and no process sits in between. The launcher looks now and
then how long the file is, and writes that down when it has grown:

    .stdout.times    offset 0   magic "distdbgT"
                            8   rank i32 | version u32
                           16   entries: wall_ns i64 | nbytes u64
    all little endian, written by appending

An entry says that the file had that many bytes at that time; so what lies between two entries was
written between them. Example: entries (10.0 s, 100) and (10.2 s, 180): a line that ends at byte 150 came
after 10.0 s and not after 10.2 s.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAGIC: Final = int.from_bytes(b"distdbgT", "little")
VERSION: Final = 1
#: Half a MiB. When there are so many, every second one goes, and there are half as many from then on.
MAX_ENTRIES: Final = 1 << 15
LOOK_NS: Final = 200_000_000

_HEAD: Final = struct.Struct("<QiI")
_ENTRY: Final = struct.Struct("<qQ")


def times_path(log: Path) -> Path:
    """'stdout.log' -> '.stdout.times', which `ls` does not show."""
    return log.with_name(f".{log.stem}.times")


class LineTimesWriter:
    """Keeps the index of one file. What cannot be written is not there; nobody is told."""

    def __init__(self, log: Path, rank: int) -> None:
        self._log = log
        self._rank = rank
        self._fd = -1
        self._entries: list[tuple[int, int]] = []
        self._nbytes = 0
        self._least_ns = LOOK_NS
        self._is_given_up = False

    def look(self, wall_ns: int, *, is_last: bool = False) -> None:
        """Write down how long the file is, if it has grown; `is_last`: however soon after the last look."""
        if self._is_given_up:
            return
        if (
            not is_last
            and self._entries
            and wall_ns - self._entries[-1][0] < self._least_ns * 3 // 4
        ):
            return
        try:
            nbytes = os.stat(self._log).st_size
            if nbytes == self._nbytes:
                return
            is_shorter, self._nbytes = nbytes < self._nbytes, nbytes
            if is_shorter:  # the program began it anew
                self._entries.clear()
            self._entries.append((wall_ns, nbytes))
            if len(self._entries) > MAX_ENTRIES:
                self._least_ns *= 2
                self._entries = self._entries[1::2]
                is_shorter = True
            if self._fd < 0 or is_shorter:
                self._begin()
            else:
                os.write(self._fd, _ENTRY.pack(wall_ns, nbytes))
        except OSError:
            self._is_given_up = True
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def _begin(self) -> None:
        """Write all of it; a reader finds the old index or the new one."""
        self.close()
        path = times_path(self._log)
        draft = path.with_name(path.name + ".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(draft, flags, 0o600)
        entries = b"".join(_ENTRY.pack(*entry) for entry in self._entries)
        os.write(self._fd, _HEAD.pack(MAGIC, self._rank, VERSION) + entries)
        os.rename(draft, path)


@dataclass(frozen=True, slots=True)
class LineTimes:
    """The index of one file."""

    rank: int
    wall_ns: Sequence[int]
    nbytes: Sequence[int]

    def time_of(self, end: int) -> int | None:
        """When the byte before `end` had been written at the latest; None: not seen yet."""
        index = bisect.bisect_left(self.nbytes, end)
        return self.wall_ns[index] if index < len(self.nbytes) else None


def read_rank(log: Path) -> int | None:
    """Whose output the log file has, by its index; None when there is none."""
    return _rank_in(_read(log, _HEAD.size))


def _read(log: Path, most: int) -> bytes:
    try:
        with open(times_path(log), "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def _rank_in(data: bytes) -> int | None:
    if len(data) < _HEAD.size:
        return None
    magic, rank, version = _HEAD.unpack_from(data)
    return None if magic != MAGIC or version != VERSION or rank < 0 else int(rank)


def read_line_times(log: Path) -> LineTimes | None:
    """The index of this log file; None when there is none. Damaged or torn: what is whole of it."""
    data = _read(log, _HEAD.size + 2 * MAX_ENTRIES * _ENTRY.size)
    rank = _rank_in(data)
    if rank is None:
        return None
    wall_ns: list[int] = []
    sizes: list[int] = []
    end = len(data) - (len(data) - _HEAD.size) % _ENTRY.size
    for when_ns, nbytes in _ENTRY.iter_unpack(data[_HEAD.size : end]):
        # A clock that was set back must not make later lines earlier.
        if sizes and nbytes <= sizes[-1]:
            break
        wall_ns.append(max(when_ns, wall_ns[-1]) if wall_ns else when_ns)
        sizes.append(nbytes)
    return LineTimes(rank, wall_ns, sizes)
