"""What each rank says of its memory at the beginning of an op: a row of as many bytes on every rank."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distdbg.runtime.backends.gpu.exports import MOST_RETIRED

_HANDLE_NBYTES: Final = 64
_WHY_NBYTES: Final = 96
#: Whether it can, how many entries, new exports and retired ones; the factor.
_HEAD: Final = struct.Struct("<?xHHHd")
_ENTRY: Final = struct.Struct("<qQQ")
_NEW: Final = struct.Struct(f"<q{_HANDLE_NBYTES}s")


class Entry(NamedTuple):
    """A piece of a rank's memory that others read or write; number -1: there is none."""

    export: int
    offset: int
    nbytes: int


NOTHING: Final = Entry(-1, 0, 0)


@dataclass(slots=True)
class Row:
    """Of one rank."""

    event: bytes = b""
    #: Why its arrays cannot be opened; "": they can.
    why_not: str = ""
    #: For each rank what that one reads here, or one for all; then, last, what all write.
    gives: list[Entry] = field(default_factory=list)
    target: Entry = NOTHING
    #: How many bytes it expects to read from each rank; none: that is not asked.
    takes: list[int] = field(default_factory=list)
    factor: float = 1.0
    new: list[tuple[int, bytes]] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)

    def for_rank(self, reader: int) -> Entry:
        """What this rank gives to another."""
        if not self.gives:
            return NOTHING
        return self.gives[0] if len(self.gives) == 1 else self.gives[reader]


def row_nbytes(size: int) -> int:
    """The same on all ranks of a group."""
    most_new = size + 1
    return (
        _HEAD.size + _HANDLE_NBYTES + _WHY_NBYTES + _ENTRY.size * (size + 1)
        + 8 * size + 8 * MOST_RETIRED + _NEW.size * most_new
    )  # fmt: skip


def pack(row: Row, size: int) -> bytes:
    """For the others."""
    takes = [*row.takes, *[-1] * (size - len(row.takes))]
    retired = [*row.retired, *[-1] * (MOST_RETIRED - len(row.retired))]
    gives = [*row.gives, *[NOTHING] * (size - len(row.gives))]
    parts = [
        _HEAD.pack(not row.why_not, len(row.gives), len(row.new), len(row.retired), row.factor),
        row.event.ljust(_HANDLE_NBYTES, b"\0"),
        row.why_not.encode()[:_WHY_NBYTES].ljust(_WHY_NBYTES, b"\0"),
        *[_ENTRY.pack(*entry) for entry in gives],
        _ENTRY.pack(*row.target),
        struct.pack(f"<{size}q", *takes),
        struct.pack(f"<{MOST_RETIRED}q", *retired),
        *[_NEW.pack(number, handle) for number, handle in row.new],
    ]
    return b"".join(parts).ljust(row_nbytes(size), b"\0")


def unpack(data: bytes, size: int) -> Row:
    """Of another rank."""
    can, given, new, retired, factor = _HEAD.unpack_from(data)
    at = _HEAD.size
    event = data[at : at + _HANDLE_NBYTES]
    at += _HANDLE_NBYTES
    why = data[at : at + _WHY_NBYTES].rstrip(b"\0").decode(errors="replace")
    at += _WHY_NBYTES
    entries = [
        Entry(*_ENTRY.unpack_from(data, at + index * _ENTRY.size)) for index in range(size + 1)
    ]
    at += (size + 1) * _ENTRY.size
    takes = list(struct.unpack_from(f"<{size}q", data, at))
    at += 8 * size
    gone = list(struct.unpack_from(f"<{MOST_RETIRED}q", data, at))[:retired]
    at += 8 * MOST_RETIRED
    opened = [_NEW.unpack_from(data, at + index * _NEW.size) for index in range(new)]
    return Row(
        event, "" if can else why or "unknown", entries[:given], entries[size],
        [] if takes[0] < 0 else takes, factor, opened, gone,
    )  # fmt: skip


def fits(rows: Sequence[Row]) -> bool:
    """Whether each rank gives to each other what that one expects."""
    return all(
        not taker.takes or taker.takes[giver] == rows[giver].for_rank(reader).nbytes
        for reader, taker in enumerate(rows)
        for giver in range(len(rows))
    )
