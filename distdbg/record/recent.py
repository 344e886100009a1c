"""The newest entries of a ring as plain rows: for readers that poll many records.

    rows = read_recent(source, tables, after=1040, last=1042, most=200)      numbers 1041 and 1042

Nothing is looked up that an entry points to. An entry that is being written, was overwritten, or is
damaged is not there; whoever asks again gets it then.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from distdbg.record.format import NO_COLLECTIVE, OP, OP_NBYTES, EventType, Section, unpack
from distdbg.record.header import SectionTables
from distdbg.record.ring import find_entry, is_op_whole, read_places
from distdbg.record.ring_copy import WORDS, to_array
from distdbg.record.source import ByteSource

_ROW: Final = struct.Struct("<QqQ8xQQIIiBBBx24x8xQQQQ")
assert _ROW.size == OP_NBYTES
_SEQ: Final = OP["seq"].offset // 8
_GROUP: Final = OP["group"].offset // 8
_TYPE: Final = OP["type"].offset
_FLAGS: Final = OP["flags"].offset
_KIND: Final = OP["kind"].offset
_PEER: Final = OP["peer"].offset
#: How many entries are searched at once, from the newest back.
_STEP: Final = 256


class RecentOp(NamedTuple):
    """One op, with numbers for what it points to. Times are monotonic."""

    number: int
    issued_ns: int
    seq: int
    group: int
    form: int
    site: int
    thread: int
    peer: int
    flags: int
    kind: int
    started_ns: int | None
    ended_ns: int | None
    status: int | None
    """None while it is in flight."""
    error: int
    """The number of its text; 0: none."""


def read_recent(
    source: ByteSource, tables: SectionTables, *, after: int, last: int, most: int
) -> list[RecentOp]:
    """The ops with numbers from `after` + 1 to `last` that are whole, the newest `most` at the most."""
    found = []
    for number, data in _pieces(source, tables, max(after, last - most, 0), last):
        for at in range(len(data) // OP_NBYTES):
            row = data[at * OP_NBYTES : (at + 1) * OP_NBYTES]
            if row[_TYPE] == EventType.OP and is_op_whole(row, number + at):
                found.append(to_op(row, number + at))
    return found


def read_notes(
    source: ByteSource,
    tables: SectionTables,
    *,
    after: int,
    last: int,
    most: int,
    only: EventType | None = None,
) -> list[tuple[int, bytes]]:
    """What is no op among the numbers from `after` + 1 to `last`: number and row, the newest `most`.

    `only`: what is of this type.
    """
    found: list[tuple[int, bytes]] = []
    for low, data in reversed(list(_pieces(source, tables, max(after, 0), last))):
        types = data[_TYPE::OP_NBYTES]
        if types.count(EventType.OP) == len(types) or (only is not None and only not in types):
            continue
        for at in range(len(types) - 1, -1, -1):
            if types[at] == EventType.OP or (only is not None and types[at] != only):
                continue
            if len(found) >= most:
                return found[::-1]
            row = data[at * OP_NBYTES : (at + 1) * OP_NBYTES]
            if is_op_whole(row, low + at):
                found.append((low + at, (low + at).to_bytes(8, "little") + row[8:]))
    return found[::-1]


def read_one(source: ByteSource, tables: SectionTables, number: int) -> RecentOp | None:
    """One op, also a parked one; None: not there any more."""
    entry = find_entry(source, tables, number)
    if entry is None or entry[0][_TYPE] != EventType.OP:
        return None
    return to_op(entry[0], number)


def find_seq(
    source: ByteSource,
    tables: SectionTables,
    *,
    group: int,
    seq: int,
    last: int,
    flags: int = 0,
    kind: int | None = None,
    peer: int | None = None,
) -> int | None:
    """The number of an op by its seq in its group; None: not issued yet, or not there any more.

    `flags` are of MESSAGE and ASIDE those that it has; `kind` and, of a message, `peer` tell apart what is
    numbered by itself. The newest that fits. Costs by how far back it is.
    """
    for data in _backwards(source, tables, last):
        words = to_array("Q", data)
        seqs, groups = words[_SEQ::WORDS], words[_GROUP::WORDS]
        for at in range(len(seqs) - 1, -1, -1):
            if seqs[at] != seq or groups[at] != group:
                continue
            row = data[at * OP_NBYTES : (at + 1) * OP_NBYTES]
            if (
                row[_TYPE] == EventType.OP
                and row[_FLAGS] & NO_COLLECTIVE == flags
                and (kind is None or row[_KIND] == kind)
                and (peer is None or int.from_bytes(row[_PEER : _PEER + 4], "little") == peer)
                and is_op_whole(row, words[at * WORDS])
            ):
                return words[at * WORDS]
    return None


def _pieces(
    source: ByteSource, tables: SectionTables, after: int, last: int
) -> Iterator[tuple[int, bytes]]:
    """The places of the numbers from `after` + 1 to `last`: the first number, and the bytes; two at most."""
    table = tables[Section.RING]
    if table.entry_nbytes == OP_NBYTES:
        yield from read_places(source, table, max(after + 1, last - table.count + 1), last)


def _backwards(source: ByteSource, tables: SectionTables, last: int) -> Iterator[bytes]:
    """Pieces of the ring from the newest entry back, then the parked ops, each in order."""
    table = tables[Section.RING]
    if table.entry_nbytes == OP_NBYTES:
        high = last
        lowest = max(1, last - table.count + 1)
        while high >= lowest:
            at = high % table.count
            count = min(_STEP, high - lowest + 1, at + 1)
            yield source.read(table.offset + (at - count + 1) * OP_NBYTES, count * OP_NBYTES)
            high -= count
    table = tables[Section.PARKED]
    data = source.read(table.offset, table.count * table.entry_nbytes)
    starts = range(0, len(data) - table.entry_nbytes + 1, table.entry_nbytes)
    yield b"".join(data[start : start + OP_NBYTES] for start in starts)


def to_op(row: bytes, number: int) -> RecentOp:
    """An op of the ring by its bytes, which are whole."""
    (
        _,
        issued_ns,
        seq,
        group,
        form,
        site,
        thread,
        peer,
        _,
        flags,
        kind,
        started,
        ended,
        outcome,
        error,
    ) = _ROW.unpack(row)
    after_ns = unpack(started) if started else None
    took_ns = unpack(ended) if ended else None
    code = unpack(outcome) if outcome else None
    return RecentOp(
        number,
        issued_ns,
        seq,
        group,
        form,
        site,
        thread,
        peer,
        flags,
        kind,
        None if after_ns is None else issued_ns + after_ns,
        None if took_ns is None else issued_ns + took_ns,
        None if code is None else code & 0xFF,
        (unpack(error) or 0) if error else 0,
    )
