"""The memory of arrays as MPI takes it: in place, or several arrays one after the other in one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from distdbg.ops.dtypes import Dtype
from distdbg.runtime.arrays.buffers import Buffer

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(slots=True)
class MpiRequests:
    """Requests of one op, what has to live as long, and what is left to do when they have ended."""

    requests: list[Any]
    keeps: list[Any] = field(default_factory=list)
    finish: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MpiBuffer:
    """Contiguous memory of elements of one dtype."""

    address: int
    count: int
    dtype: int

    @classmethod
    def of(cls, buffer: Buffer) -> MpiBuffer:
        """The memory of an array."""
        return cls(buffer.address, buffer.nbytes // Dtype(buffer.dtype).itemsize, buffer.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return Dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return self.count * self.itemsize

    def part(self, begin: int, count: int) -> MpiBuffer:
        """Some of the elements."""
        return MpiBuffer(self.address + begin * self.itemsize, count, self.dtype)

    def parts(self, largest: int) -> list[MpiBuffer]:
        """Cut into parts of at most so many elements; one part of none for an empty piece."""
        if self.count <= largest:
            return [self]
        return [
            self.part(begin, min(largest, self.count - begin))
            for begin in range(0, self.count, largest)
        ]

    def cut(self, counts: Sequence[int]) -> list[MpiBuffer]:
        """Neighbours of these sizes, in order."""
        begins = [0, *accumulate(counts)]
        return [self.part(begin, count) for begin, count in zip(begins, counts, strict=False)]

    def overlaps(self, other: MpiBuffer) -> bool:
        """Whether the two share at least one byte."""
        return bool(
            self.nbytes
            and other.nbytes
            and self.address < other.address + other.nbytes
            and other.address < self.address + self.nbytes
        )


def bytes_of(mpi: Any, piece: MpiBuffer) -> Any:
    """The memory as an object that mpi4py takes."""
    return mpi.buffer.fromaddress(piece.address if piece.nbytes else 0, piece.nbytes)


def as_array(mpi: Any, piece: MpiBuffer) -> Bytes:
    """The memory as bytes of NumPy's."""
    if not piece.nbytes:
        return np.empty(0, np.uint8)
    return np.frombuffer(bytes_of(mpi, piece), np.uint8)


def new_piece(count: int, dtype: int, started: MpiRequests) -> MpiBuffer:
    """Memory that lives as long as the op."""
    memory = np.empty(max(count * Dtype(dtype).itemsize, 1), np.uint8)
    started.keeps.append(memory)
    return MpiBuffer(memory.ctypes.data, count, dtype)


def joined(mpi: Any, pieces: Sequence[MpiBuffer], started: MpiRequests) -> MpiBuffer:
    """A copy of the pieces, one after the other; the piece itself where it is one."""
    if len(pieces) == 1:
        return pieces[0]
    whole = new_piece(sum(piece.count for piece in pieces), pieces[0].dtype, started)
    for part, piece in zip(whole.cut([p.count for p in pieces]), pieces, strict=True):
        as_array(mpi, part)[:] = as_array(mpi, piece)
    return whole


def room_for(mpi: Any, pieces: Sequence[MpiBuffer], started: MpiRequests) -> MpiBuffer:
    """Memory for all pieces, one after the other, that is spread over them when the op has ended."""
    if len(pieces) == 1:
        return pieces[0]
    whole = new_piece(sum(piece.count for piece in pieces), pieces[0].dtype, started)

    def spread() -> None:
        for part, piece in zip(whole.cut([p.count for p in pieces]), pieces, strict=True):
            as_array(mpi, piece)[:] = as_array(mpi, part)

    # First: an array that is not contiguous is brought back from its block.
    started.finish.insert(0, spread)
    return whole


def apart(mpi: Any, source: MpiBuffer, target: MpiBuffer, started: MpiRequests) -> MpiBuffer:
    """The source, or a copy of it where it shares memory with the target, which MPI forbids."""
    if not source.overlaps(target):
        return source
    copy = new_piece(source.count, source.dtype, started)
    as_array(mpi, copy)[:] = as_array(mpi, source)
    return copy
