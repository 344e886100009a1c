"""Protobuf's wire format: what a few messages need. Pure.

Without its library, which the `otlp` extra alone brings, and without definitions, which no package brings: a
test holds what is written against that library's encoders.

A message is its fields one after the other. A field is a tag, which is number << 3 | type, then its value:

    type 0  varint: 7 bits a byte, the lowest first, bit 7 set on all but the last byte
    type 1  8 bytes, little end first: fixed64, double
    type 2  a varint of how many bytes, then these: string, bytes, message, packed
    type 5  4 bytes

    field 1 = 300 (varint):  08 ac 02        field 2 = "dp":  12 02 64 70

Each function gives the whole field, so a message is `b"".join((uint(1, 300), text(2, "dp")))`. Zero and empty
are written too: whether they may be left out is for the caller to know.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

_DOUBLE: Final = struct.Struct("<d").pack
_FIXED64: Final = struct.Struct("<Q").pack
_MASK64: Final = (1 << 64) - 1
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def varint(value: int) -> bytes:
    """The bytes of an unsigned integer below 2**64, or of a negative one of 64 bits, which takes ten."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if 0 <= value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    value &= _MASK64
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def zigzag(value: int) -> int:
    """How sint32 and sint64 turn small negative numbers into small varints: 0, -1, 1, -2 are 0, 1, 2, 3."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def tag(number: int, type_: int) -> bytes:
    return varint(number << 3 | type_)


def uint(number: int, value: int) -> bytes:
    """uint32, uint64, int32, int64, bool or enum."""
    return varint(number << 3) + varint(value)


def sint(number: int, value: int) -> bytes:
    """sint32 or sint64."""
    return varint(number << 3) + varint(zigzag(value))


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + _DOUBLE(value)


def fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + _FIXED64(value & _MASK64)


def chunk(number: int, value: bytes) -> bytes:
    """bytes, or a message that is written already."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def text(number: int, value: str) -> bytes:
    """string; what UTF-8 cannot say becomes a question mark."""
    return chunk(number, value.encode("utf-8", "replace"))


def packed_sints(number: int, values: Iterable[int]) -> bytes:
    return chunk(number, b"".join(varint(zigzag(value)) for value in values))


def delimited(message: bytes) -> bytes:
    """A message in a stream of them: its length before it."""
    return varint(len(message)) + message
