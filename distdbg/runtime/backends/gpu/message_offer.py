"""What a message says of its sender's memory on a device, in the place of data: opaque to native code.

    offset 0  allocation u64 | offset u64 | event u64 | freed count u64          all little endian
          32  memory handle 64 bytes | event handle 64 bytes
         160  freed u64 each, at most 8

An allocation is named by CUDA's number of it, which its process never uses again. Native code takes 512
bytes (description_nbytes).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

_HEAD: Final = struct.Struct("<QQQQ64s64s")
#: Allocations that one offer says to be freed.
MOST_FREED: Final = 8


@dataclass(frozen=True, slots=True)
class MessageOffer:
    """Of one message."""

    #: CUDA's number of the allocation, and where in it the array begins.
    allocation: int
    offset: int
    memory_handle: bytes
    #: The sender's number of the event after which the array may be read.
    event: int
    event_handle: bytes
    #: Allocations of earlier offers to this rank that are no more.
    freed: tuple[int, ...] = ()


def pack(offer: MessageOffer) -> bytes:
    """For the receiver."""
    head = _HEAD.pack(
        offer.allocation, offer.offset, offer.event, len(offer.freed),
        offer.memory_handle, offer.event_handle,
    )  # fmt: skip
    return head + struct.pack(f"<{len(offer.freed)}Q", *offer.freed)


def unpack(data: bytes) -> MessageOffer:
    """Of a sender; ValueError for what is no offer."""
    if len(data) < _HEAD.size:
        raise ValueError("an offer from a device is too short")
    allocation, offset, event, count, memory_handle, event_handle = _HEAD.unpack_from(data)
    if count > MOST_FREED or len(data) != _HEAD.size + 8 * count:
        raise ValueError("an offer from a device has another size than it says")
    freed = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
    return MessageOffer(allocation, offset, memory_handle, event, event_handle, freed)
