"""The entries of a ring as one string of bytes, at the speed of memcpy where nothing is wrong with them.

    ring as it lies        .. 4097 4098 | 3 4 5 ...        numbers, at index number % count
    rows                   3 4 5 ... 4097 4098             in order, `OP_NBYTES` each

Healthy is: every place between the first and the last has the number that belongs there and a check that
fits, and nothing was begun behind the last. All else is left to `ring.find_entries`, which looks at
each entry for itself; the result is the same.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, field
from typing import Final

from distdbg.record.entries import Gap
from distdbg.record.format import CHECK_MODULUS, OP_NBYTES, Section
from distdbg.record.header import SectionTables
from distdbg.record.ring import CHECK_OFFSET, RingEntries, add_parked, find_entries, is_op_whole
from distdbg.record.source import ByteSource

#: How many words an entry has.
WORDS: Final = OP_NBYTES // 8
#: How many places behind the last number of the state are read: a writer may be at work.
_AHEAD: Final = 32


@dataclass(slots=True)
class Rows:
    """All entries that are whole, parked ones first."""

    data: bytes
    parked_forms: dict[int, bytes] = field(default_factory=dict)
    """The form that a parked op took along, by the op's number."""
    gaps: list[Gap] = field(default_factory=list)
    overwritten: int = 0
    """How many events the ring had no room for any more."""


def read_rows(source: ByteSource, tables: SectionTables, last_hint: int) -> Rows:
    """Read the ring and the parked ops; `last_hint`: what the state says, which may be wrong."""
    table = tables[Section.RING]
    if table.entry_nbytes == OP_NBYTES:
        places = last_hint + 1 + _AHEAD if last_hint < table.count else table.count
        places = min(places, table.count)
        data = source.read(table.offset, places * OP_NBYTES)
        healthy = _in_order(data, table.count) if len(data) == places * OP_NBYTES else None
        if healthy is not None:
            first, ordered = healthy
            found = RingEntries()
            add_parked(found, source, tables[Section.PARKED], first)
            if first is not None:
                found.entries.pop(first, None)  # it is being parked, and still at its place
            return _join(found, ordered, first or 1)
    found = find_entries(source, tables)
    return _join(found, b"", found.first)


def _join(found: RingEntries, ordered: bytes, first: int) -> Rows:
    """`ordered`: what has not to be joined."""
    data = b"".join((*found.entries.values(), ordered)) if found.entries else ordered
    kept = sum(number < first for number in found.entries)
    return Rows(data, found.parked_forms, found.gaps, first - 1 - kept)


def _in_order(data: bytes, count: int) -> tuple[int | None, bytes] | None:
    """The first number and the rows, if the ring is healthy; `data` is it or its beginning."""
    numbers = to_array("Q", data)[::WORDS]
    last = max(numbers)
    places = len(numbers)
    first = max(1, last - count + 1)
    after = (last + 1) % count
    if last >= 2**63 or after >= places:
        return None  # hostile, or more than was read
    if last < count:
        used = numbers[1 : last + 1]
        rest = [numbers[0], *numbers[last + 1 :]]
        if last == count - 1 and is_op_whole(data[:OP_NBYTES], count):
            return None
        ordered = data[OP_NBYTES : (last + 1) * OP_NBYTES]
    else:
        if places < count:
            return None
        used = numbers[after:] + numbers[:after]
        rest = []
        ordered = data[after * OP_NBYTES :] + data[: after * OP_NBYTES]
    if used != array("Q", range(first, last + 1)) or any(rest):
        return None
    if rest and after and is_op_whole(data[after * OP_NBYTES :][:OP_NBYTES], last + 1):
        return None  # only its first word is missing
    return (first if last else None, ordered) if _have_checks(ordered) else None


def to_array(code: str, data: bytes) -> array[int]:
    """Little-endian values of one type."""
    values = array(code, data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _have_checks(rows: bytes) -> bool:
    """Whether the check of every row fits: all rows at once, one long integer per word of an entry.

    The words of all rows lie side by side in it, each in a lane of 128 bits, so that the sum of eleven
    never runs over. Modulo 2**64 - 1 the upper half of a lane counts as much as the lower.
    """
    words = to_array("Q", rows)
    count = len(words) // WORDS
    if count == 0:
        return True
    low = int.from_bytes((b"\xff" * 8 + bytes(8)) * ((count + 1) // 2), "little")
    even = odd = 0
    for index in range(CHECK_OFFSET // 8):
        column = int.from_bytes(_to_bytes(words[index::WORDS]), "little")
        even += column & low
        odd += column >> 64 & low
    for _ in range(2):  # the first time may give one bit more than a word has
        even = (even & low) + (even >> 64 & low)
        odd = (odd & low) + (odd >> 64 & low)
    checks = words[CHECK_OFFSET // 8 :: WORDS]
    if even | odd << 64 == int.from_bytes(_to_bytes(checks), "little"):
        return True
    # Something is damaged, or a sum is the modulus, which stands for 0: each row for itself.
    return all(
        int.from_bytes(rows[at : at + CHECK_OFFSET], "little") % CHECK_MODULUS == check
        for at, check in zip(range(0, len(rows), OP_NBYTES), checks, strict=True)
    )


def _to_bytes(words: array[int]) -> bytes:
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words.tobytes()
