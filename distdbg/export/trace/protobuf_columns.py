"""Many protobuf messages of one layout at once, by NumPy: a column of values becomes a column of bytes.

    head = Fixed(count)
    head.const(b"\\x0a"); head.varint(lengths, 3); head.fixed64(flows)
    join(head, blobs, tail)           bytes: head, blob and tail of row 0, then of row 1 ...

So that the values of a column take as many bytes in all rows, varints are padded: 5 is 85 80 00 in three
bytes. The format allows it, and readers take it: protozero, which writes most traces, does so to lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def width_of(values: NDArray[np.int64], least: int = 1) -> int:
    """How many bytes the largest of these takes as a varint; none is negative."""
    most = int(values.max()) if len(values) else 0
    return max(least, (most.bit_length() + 6) // 7)


class Fixed:
    """The same fields for `count` rows."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[NDArray[np.uint8]] = []
        self.nbytes = 0

    def const(self, data: bytes) -> None:
        self._add(np.broadcast_to(np.frombuffer(data, np.uint8), (self._count, len(data))))

    def varint(self, values: ArrayLike, width: int) -> None:
        """One value for all, or one for each; none is negative, or takes more than `width` bytes."""
        left = np.broadcast_to(np.asarray(values, np.int64), (self._count,)).astype(np.uint64)
        part = np.empty((self._count, width), np.uint8)
        for at in range(width):
            low = left.astype(np.uint8)
            part[:, at] = low & 0x7F if at == width - 1 else low | 0x80
            left = left >> np.uint64(7)
        self._add(part)

    def fixed64(self, values: NDArray[np.uint64]) -> None:
        data = np.ascontiguousarray(values, "<u8").view(np.uint8)
        self._add(data.reshape(self._count, 8))

    def append(self, other: Fixed) -> None:
        self._parts += other._parts
        self.nbytes += other.nbytes

    def _add(self, part: NDArray[np.uint8]) -> None:
        self._parts.append(part)
        self.nbytes += part.shape[1]

    def to_matrix(self) -> NDArray[np.uint8]:
        if not self._parts:
            return np.empty((self._count, 0), np.uint8)
        return np.concatenate(self._parts, axis=1)


@dataclass(slots=True)
class Blobs:
    """Pieces of bytes, one after the other."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> Blobs:
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return cls(np.frombuffer(b"".join(pieces), np.uint8), np.cumsum(lengths) - lengths, lengths)


def join(head: Fixed, blobs: Blobs, which: NDArray[np.int64], tail: Fixed) -> bytes:
    """Head, one blob and tail of each row; `which`: the blob of each."""
    front, back = head.to_matrix(), tail.to_matrix()
    lengths = blobs.lengths[which]
    nbytes = lengths + (front.shape[1] + back.shape[1])
    ends = np.cumsum(nbytes)
    starts = ends - nbytes
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    out[starts[:, None] + np.arange(front.shape[1])] = front
    middle = starts + front.shape[1]
    out[(middle + lengths)[:, None] + np.arange(back.shape[1])] = back
    # Byte k of all blobs together, by row: where it comes from, and where it goes.
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    every = np.arange(total)
    out[every + np.repeat(middle - before, lengths)] = blobs.data[
        every + np.repeat(blobs.starts[which] - before, lengths)
    ]
    return out.tobytes()
