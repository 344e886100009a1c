"""Finds which entries a ring and its parked ops hold, in order, and what is missing between them.

    numbers that must be there           parked ...   last - count + 1  ...  last
    cleared first word, check fits       there: the writer was about to publish or to overwrite it
    cleared first word, check differs    absent: it was being written when the bytes were read
    an older number, check fits          absent: it was never begun
    a later number, check fits           overwritten since the ring was read
    anything else                        damaged

An absent entry is passed over; at a damaged one a strict reading stops, so that it gives a prefix of
what was written. Only the last entry can be missing without a trace, and then the rest is a prefix.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from distdbg.record.entries import Gap
from distdbg.record.format import CHECK_MODULUS, OP, OP_NBYTES, PARKED_NBYTES, EventType, Section
from distdbg.record.header import SectionTable, SectionTables
from distdbg.record.references import TRIES, has_check, is_text_whole
from distdbg.record.source import ByteSource

CHECK_OFFSET: Final = OP["check"].offset
#: No writer gets so far; larger numbers are damage.
_MAX_NUMBER: Final = 2**63
_FORM: Final = OP["form"].offset
_TYPE: Final = OP["type"].offset
_ENDED: Final = OP["ended"].offset
#: number, seq, group, thread, type, flags, kind.
_ISSUED: Final = struct.Struct("<Q8xQ8xQ12xI4xBBB")


class EntryPresence(Enum):
    """What the place of a number holds."""

    WHOLE = 1
    ABSENT = 2
    #: A later number, written since the ring was read.
    OVERWRITTEN = 3
    DAMAGED = 4


@dataclass(slots=True)
class RingEntries:
    """Entries by number, in order; `OP_NBYTES` bytes each, the first word as it should be."""

    entries: dict[int, bytes] = field(default_factory=dict)
    #: The form that a parked op took along.
    parked_forms: dict[int, bytes] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    #: Without salvage: from here on nothing may be given.
    end: int | None = None
    #: The first number that the ring may have.
    first: int = 1


def find_entries(source: ByteSource, tables: SectionTables) -> RingEntries:
    """Look at every place of the ring and of the parked ops, once."""
    ring = _Ring(source, tables[Section.RING])
    found = RingEntries(first=ring.first)
    #: With an empty ring nothing is known of what can have been parked.
    limit = ring.first if ring.last else None
    add_parked(found, source, tables[Section.PARKED], limit)
    _add_ring(found, ring)
    return found


def is_op_whole(data: bytes, number: int) -> bool:
    """Whether these are the bytes of entry `number`, whatever their first word says."""
    return len(data) == OP_NBYTES and has_check(data, number, CHECK_OFFSET)


def derive_number(data: bytes) -> int:
    """The first word that would make the check right."""
    rest = int.from_bytes(data[8:CHECK_OFFSET], "little") * 2**64
    check = int.from_bytes(data[CHECK_OFFSET : CHECK_OFFSET + 8], "little")
    return (check - rest) % CHECK_MODULUS


class _Ring:
    def __init__(self, source: ByteSource, table: SectionTable) -> None:
        self._source = source
        self.table = table
        self._data = bytearray(source.read(table.offset, table.count * table.entry_nbytes))
        self.present = len(self._data) // table.entry_nbytes
        #: The first words by index, and those of them whose entry is whole, else 0.
        self.numbers = _first_words(self._data, table.entry_nbytes)
        self.whole = [self._number_if_whole(index) for index in range(self.present)]
        self.last = max(self.whole, default=0)
        if self.presence(self.last + 1) is EntryPresence.WHOLE:
            self.last += 1
        self.first = max(1, self.last - table.count + 1)

    def _number_if_whole(self, index: int) -> int:
        number = self.numbers[index]
        is_here = 0 < number < _MAX_NUMBER and number % self.table.count == index
        return number if is_here and is_op_whole(self.at(index), number) else 0

    def at(self, index: int) -> bytes:
        start = index * self.table.entry_nbytes
        return bytes(self._data[start : start + OP_NBYTES])

    def entry(self, number: int) -> bytes:
        return number.to_bytes(8, "little") + self.at(number % self.table.count)[8:]

    def offset(self, number: int) -> int:
        return self.table.offset + number % self.table.count * self.table.entry_nbytes

    def presence(self, number: int) -> EntryPresence:
        index = number % self.table.count
        if index >= self.present:
            return EntryPresence.DAMAGED
        if number >= _MAX_NUMBER:
            return EntryPresence.ABSENT
        if self.whole[index] == number:
            return EntryPresence.WHOLE
        if self.whole[index]:
            return EntryPresence.ABSENT if self.whole[index] < number else EntryPresence.OVERWRITTEN
        if self.numbers[index]:
            return EntryPresence.DAMAGED
        return EntryPresence.WHOLE if is_op_whole(self.at(index), number) else EntryPresence.ABSENT

    def candidates(self, number: int) -> tuple[int, ...]:
        """What the number at this place can have been: one is right when one bit is wrong."""
        index = number % self.table.count
        return (self.numbers[index], derive_number(self.at(index))) if index < self.present else ()

    def presence_now(self, number: int) -> EntryPresence:
        """`presence`; what a writer may have been at is read again."""
        presence = self.presence(number)
        tries = TRIES if self._source.is_live else 0
        index = number % self.table.count
        while (
            presence in (EntryPresence.ABSENT, EntryPresence.DAMAGED)
            and tries
            and index < self.present
        ):
            data = self._source.read(self.offset(number), OP_NBYTES)
            start = index * self.table.entry_nbytes
            self._data[start : start + len(data)] = data
            self.numbers[index] = int.from_bytes(data[:8], "little")
            self.whole[index] = self._number_if_whole(index)
            presence = self.presence(number)
            tries -= 1
        return presence


def _add_ring(found: RingEntries, ring: _Ring) -> None:
    first = ring.first
    if ring.last >= ring.table.count and ring.presence_now(first) is EntryPresence.DAMAGED:
        # One place is that of the oldest and that of the next: which of the two is damaged? Where
        # it may be the oldest, all that follows is no prefix.
        newest = ring.last + 1
        candidates = ring.candidates(first)
        if newest in candidates and first not in candidates:
            found.gaps.append(_gap(newest, ring, "damaged"))
            first += 1
    for number in range(first, ring.last + 1):
        presence = ring.presence_now(number)
        if presence is EntryPresence.WHOLE:
            found.entries[number] = ring.entry(number)
        elif presence is EntryPresence.DAMAGED:
            is_cut = number % ring.table.count >= ring.present
            found.gaps.append(_gap(number, ring, "cut off" if is_cut else "damaged"))
            found.end = number if found.end is None else min(found.end, number)
        elif presence is EntryPresence.ABSENT and number > ring.first:
            # The oldest makes room for the next when the writer is stopped; that is no gap.
            found.gaps.append(_gap(number, ring, "was being written"))


def _gap(number: int, ring: _Ring, why: str) -> Gap:
    return Gap(first=number, last=number, offset=ring.offset(number), why=why)


def add_parked(
    found: RingEntries, source: ByteSource, table: SectionTable, limit: int | None
) -> None:
    """Find the ops kept aside; `limit`: the first number that the ring may have, None: not known."""
    data = source.read(table.offset, table.count * table.entry_nbytes)
    if data == bytes(table.count * table.entry_nbytes):
        return  # nothing was ever parked
    limit = _MAX_NUMBER - 1 if limit is None else limit
    numbers = _first_words(data, table.entry_nbytes)
    if len(numbers) < table.count:
        found.gaps.append(
            Gap(first=1, last=limit - 1, offset=source.nbytes, why="parked ops are cut off")
        )
        found.end = 1
    parked: dict[int, bytes] = {}
    for index, number in enumerate(numbers):
        start = index * table.entry_nbytes
        op = data[start : start + OP_NBYTES]
        if number == 0:
            # Never used, or given up before it was whole; but one bit may make 0 of a power of two.
            number = derive_number(op)
            form = data[start + OP_NBYTES : start + table.entry_nbytes]
            if number & (number - 1) or not 0 < number <= limit or not _is_form_there(op, form):
                continue
        elif not is_op_whole(op, number):
            # One of the two is right when one bit is wrong.
            least = min((n for n in (number, derive_number(op)) if 0 < n <= limit), default=1)
            found.gaps.append(
                Gap(first=least, last=least, offset=table.offset + start, why="parked and damaged")
            )
            found.end = least if found.end is None else min(found.end, least)
            continue
        elif number > limit:
            continue  # parked since the ring was read
        parked[number] = number.to_bytes(8, "little") + op[8:]
        found.parked_forms[number] = data[start + OP_NBYTES : start + table.entry_nbytes]
    found.entries = dict(sorted(parked.items()))


def _is_form_there(op: bytes, form: bytes) -> bool:
    number = int.from_bytes(op[_FORM : _FORM + 8], "little")
    return number == 0 or is_text_whole(form, number)


def _first_words(data: bytes | bytearray, stride: int) -> list[int]:
    whole = len(data) // stride * stride
    return [word for (word,) in struct.iter_unpack(f"<Q{stride - 8}x", data[:whole])]


def find_entry(
    source: ByteSource, tables: SectionTables, number: int
) -> tuple[bytes, bytes] | None:
    """The entry of one number and, of a parked one, its form; by two reads at most."""
    if not 0 < number < _MAX_NUMBER:
        return None
    table = tables[Section.RING]
    op = source.read(table.offset + number % table.count * table.entry_nbytes, OP_NBYTES)
    first_word = number.to_bytes(8, "little")
    if _is_number_or_cleared(op, number) and is_op_whole(op, number):
        return first_word + op[8:], b""
    table = tables[Section.PARKED]
    data = source.read(table.offset, table.count * table.entry_nbytes)
    for index, found in enumerate(_first_words(data, table.entry_nbytes)):
        start = index * table.entry_nbytes
        if found == number and is_op_whole(data[start : start + OP_NBYTES], number):
            return data[start : start + OP_NBYTES], data[start + OP_NBYTES : start + PARKED_NBYTES]
    return None


def survey(source: ByteSource, tables: SectionTables) -> tuple[int, list[int]]:
    """The number of the last entry, and those of the ops that have not ended, in order."""
    last = 0
    unended = []
    for section in (Section.PARKED, Section.RING):
        table = tables[section]
        data = source.read(table.offset, table.count * table.entry_nbytes)
        for index, number in enumerate(_first_words(data, table.entry_nbytes)):
            start = index * table.entry_nbytes
            is_unended = data[start + _TYPE] == EventType.OP and not any(
                data[start + _ENDED : start + _ENDED + 8]
            )
            if not 0 < number < _MAX_NUMBER or not (number > last or is_unended):
                continue
            if is_op_whole(data[start : start + OP_NBYTES], number):
                last = max(last, number)
                if is_unended:
                    unended.append(number)
    return last, sorted(set(unended))


class IssuedOp(NamedTuple):
    """What of an op does not change, and needs no look-up."""

    number: int
    seq: int
    group: int
    """The number of the group."""
    thread: int
    flags: int
    kind: int


def find_issued(
    source: ByteSource, tables: SectionTables, after: int, last: int
) -> Iterator[IssuedOp]:
    """The ops with numbers from `after` + 1 to `last` that the ring still has, in no order."""
    table = tables[Section.RING]
    first = max(after + 1, last - table.count + 1)
    for _, data in read_places(source, table, first, last):
        for start in range(0, len(data) - OP_NBYTES + 1, table.entry_nbytes):
            number, seq, group, thread, event, flags, kind = _ISSUED.unpack_from(data, start)
            if event == EventType.OP and first <= number <= last:
                yield IssuedOp(number, seq, group, thread, flags, kind)


def read_places(
    source: ByteSource, table: SectionTable, first: int, last: int
) -> Iterator[tuple[int, bytes]]:
    """Yield entries whose numbers fit into the ring at once: first number, bytes; two pieces at most."""
    if last < first:
        return
    low, high = first % table.count, last % table.count + 1
    parts = [(low, high)] if low < high else [(low, table.count), (0, high)]
    for begin, end in parts:
        offset = table.offset + begin * table.entry_nbytes
        yield first, source.read(offset, (end - begin) * table.entry_nbytes)
        first += end - begin


def _is_number_or_cleared(op: bytes, number: int) -> bool:
    return len(op) == OP_NBYTES and int.from_bytes(op[:8], "little") in (0, number)
