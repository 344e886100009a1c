"""The holds on the job's clock: one entry per debugger, pause or other host, in a table of the page.

    entry   pid, start ticks, rank, since      8 bytes each, little endian; `since` 0: nobody

    pid and start ticks    the process that holds it; a hold of a process that is gone is swept
    rank 0 or more         that rank sits at the prompt of a debugger
    rank -1, pid 0         `distdbg pause`: the user, until `distdbg resume`
    rank -2                a rank of another host does; the process is this host's agent
    since                  when it began, by the monotonic clock

Example: rank 3 (process 4711, begun 90,000 ticks after the host) has held the clock since 5 s, and nobody
else: the first 32 bytes of the table are 4711, 90000, 3 and 5,000,000,000.

An entry is written before its `since`, and cleared after it; all writers hold the lock of the page.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from distdbg.control.layout import HOLD_NBYTES, HOLDS_OFFSET, MAX_HOLDS

#: The `rank` of a hold that no rank has.
USER: Final = -1
OTHER_HOST: Final = -2

_ENTRY: Final = struct.Struct("<qqqq")
_WORDS: Final = HOLD_NBYTES // 8
_FIRST: Final = HOLDS_OFFSET // 8
_SINCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One reason why the clock of the job stands. Equal to another whenever that began."""

    rank: int
    pid: int = 0
    start_ticks: int = 0
    since_ns: int = field(default=0, compare=False)

    @property
    def is_of_rank(self) -> bool:
        """Whether a rank of this host sits in a debugger."""
        return self.rank >= 0

    @property
    def is_gone(self) -> bool:
        """Whether its process is; a user's pause has none."""
        return self.pid != 0 and start_ticks(self.pid) != self.start_ticks


#: The hold of `distdbg pause`.
USER_HOLD: Final = Hold(rank=USER)


def hold_of(rank: int, pid: int | None = None) -> Hold:
    """The hold of a rank, or of another host's (OTHER_HOST), by this process."""
    pid = os.getpid() if pid is None else pid
    return Hold(rank=rank, pid=pid, start_ticks=start_ticks(pid))


def start_ticks(pid: int) -> int:
    """When a process began, in ticks since the host did; 0: it is gone, or a zombie."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        # The name of the program may hold spaces and brackets: fields count from the last bracket.
        fields = os.read(fd, 4096).rpartition(b")")[2].split()
    except OSError:
        return 0  # it ended in between
    finally:
        os.close(fd)
    return int(fields[19]) if len(fields) > 19 and fields[0] not in (b"Z", b"X") else 0


def holds_from(data: bytes) -> tuple[Hold, ...]:
    """Those of a page, the longest first."""
    table = data[HOLDS_OFFSET : HOLDS_OFFSET + MAX_HOLDS * HOLD_NBYTES]
    if table == _empty():
        return ()
    found = [
        Hold(rank=rank, pid=pid, start_ticks=ticks, since_ns=since)
        for pid, ticks, rank, since in _ENTRY.iter_unpack(table)
        if since
    ]
    return tuple(sorted(found, key=lambda hold: (hold.since_ns, hold.rank)))


class HoldTable:
    """The table in the words of a mapped page; for the one writer that holds its lock."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def __iter__(self) -> Iterator[Hold]:
        for _, hold in self._entries():
            yield hold

    def add(self, hold: Hold, since_ns: int) -> bool:
        """False when it is there already; OverflowError when there is no room."""
        free = -1
        for at, entry in self._slots():
            if not entry[_SINCE]:
                free = at if free < 0 else free
            elif _to_hold(entry) == hold:
                return False
        if free < 0:
            raise OverflowError(f"{MAX_HOLDS} hold the clock of this host already")
        for index, word in enumerate((hold.pid, hold.start_ticks, hold.rank)):
            self._words[free + index] = word
        self._words[free + _SINCE] = max(since_ns, 1)
        return True

    def remove(self, hold: Hold) -> bool:
        """False when it is not there."""
        for at, held in self._entries():
            if held == hold:
                self._words[at + _SINCE] = 0
                return True
        return False

    def sweep(self) -> tuple[Hold, ...]:
        """Drop those whose process is gone."""
        gone = tuple(hold for hold in self if hold.is_gone)
        for hold in gone:
            self.remove(hold)
        return gone

    def _slots(self) -> Iterator[tuple[int, Sequence[int]]]:
        for at in range(_FIRST, _FIRST + MAX_HOLDS * _WORDS, _WORDS):
            yield at, self._words[at : at + _WORDS].tolist()

    def _entries(self) -> Iterator[tuple[int, Hold]]:
        for at, entry in self._slots():
            if entry[_SINCE]:
                yield at, _to_hold(entry)


def _to_hold(entry: Sequence[int]) -> Hold:
    pid, ticks, rank, since = entry
    return Hold(rank=rank, pid=pid, start_ticks=ticks, since_ns=since)


@cache
def _empty() -> bytes:
    return bytes(MAX_HOLDS * HOLD_NBYTES)
