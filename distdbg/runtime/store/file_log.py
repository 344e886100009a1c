"""The bytes of a FileStore: an append-only log of changes. Pure: bytes in, records out.

    offset  0  magic "distdbgF"    8  u32 version    12  u32 zero     then records, back to back:

    +--------+-----------+-------------+---------+-----------+-----+-------+
    | u32    | u32       | u32         | u8      | zeros [3] | key | value |
    | crc32  | key bytes | value bytes | kind    |           |     |       |
    +--------+-----------+-------------+---------+-----------+-----+-------+
      of all that follows it; integers are little-endian

A process that is killed while it writes leaves the beginning of a record at the end of the file,
which `read_records` does not consume; the next writer cuts it off. Anything else that does not fit
is damage.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"distdbgF"
VERSION = 1
HEADER = MAGIC + struct.pack("<II", VERSION, 0)
KEY_NBYTES = 64 << 10
VALUE_NBYTES = 1 << 30
_HEAD = struct.Struct("<IIIB3x")


class LogEntryKind(IntEnum):
    """What a record says."""

    SET = 1
    DELETE = 2
    APPEND = 3
    PUSH = 4
    POP = 5
    ENTER = 6  # key: a user's id; value: which process it is, as JSON
    LEAVE = 7


@dataclass(frozen=True, slots=True)
class StoreChange:
    """One change of a store's contents."""

    kind: LogEntryKind
    key: str
    value: bytes = b""


class DamagedLog(Exception):
    """The bytes at `offset` are no record, and not the beginning of one either."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def encode_record(record: StoreChange) -> bytes:
    """The bytes of one record."""
    key = record.key.encode("utf-8", "surrogateescape")
    body = _HEAD.pack(0, len(key), len(record.value), record.kind)[4:] + key + record.value
    return struct.pack("<I", zlib.crc32(body)) + body


def read_records(data: bytes) -> tuple[list[StoreChange], int]:
    """All whole records at the start of `data`, and how many bytes they take."""
    records = []
    offset = 0
    while len(data) - offset >= _HEAD.size:
        crc, key_nbytes, value_nbytes, kind = _HEAD.unpack_from(data, offset)
        if key_nbytes > KEY_NBYTES or value_nbytes > VALUE_NBYTES or kind not in _KINDS:
            raise DamagedLog(offset)
        value_at = offset + _HEAD.size + key_nbytes
        end = value_at + value_nbytes
        if end > len(data):
            break
        if zlib.crc32(memoryview(data)[offset + 4 : end]) != crc:
            raise DamagedLog(offset)
        key = data[offset + _HEAD.size : value_at].decode("utf-8", "surrogateescape")
        records.append(StoreChange(LogEntryKind(kind), key, data[value_at:end]))
        offset = end
    return records, offset


_KINDS = frozenset(LogEntryKind)
