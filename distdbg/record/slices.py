"""A part of the ring as columns of words: for readers that skip most of many ops.

    cut = record.slice(after=1000, last=5096, most=4096)
    cut.seqs[i], cut.ended[i]         of the op with number cut.first + i

Nothing is looked up, and no check is made but of the numbers, which all rows have as they should: what is
done with an op for the sake of these words has to be read again by its number.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from distdbg.record.format import OP, OP_NBYTES, Section, pack
from distdbg.record.header import SectionTables
from distdbg.record.recent import RecentOp, to_op
from distdbg.record.ring import is_op_whole, read_places
from distdbg.record.ring_copy import WORDS, to_array
from distdbg.record.source import ByteSource

#: The outcome of an op that ended well and came from nobody in particular.
ENDED_WELL: Final = pack(0)
_TYPE: Final = OP["type"].offset
_FLAGS: Final = OP["flags"].offset
_KIND: Final = OP["kind"].offset
_THREAD: Final = OP["thread"].offset
_PEER: Final = OP["peer"].offset
_GROUP: Final = OP["group"].offset
_LEVEL: Final = OP["level"].offset
_COMM: Final = OP["comm"].offset


@dataclass
class Slice:
    """Entries of the ring in order, without a hole."""

    first: int
    """The number of the first one."""
    data: bytes

    def __len__(self) -> int:
        return len(self.data) // OP_NBYTES

    @property
    def types(self) -> bytes:
        return self.data[_TYPE::OP_NBYTES]

    @property
    def all_flags(self) -> bytes:
        return self.data[_FLAGS::OP_NBYTES]

    def flags(self, at: int) -> int:
        return self.data[at * OP_NBYTES + _FLAGS]

    def kind(self, at: int) -> int:
        return self.data[at * OP_NBYTES + _KIND]

    def thread(self, at: int) -> int:
        """The kernel's number of the thread."""
        start = at * OP_NBYTES + _THREAD
        return int.from_bytes(self.data[start : start + 4], "little")

    def op(self, at: int) -> RecentOp | None:
        """The op, after all; None: it was torn when it was read."""
        row = self._row(at)
        return to_op(row, self.first + at) if is_op_whole(row, self.first + at) else None

    def sort(self, at: int) -> bytes:
        """Equal for ops that have all in common but numbers, times and end."""
        row = self._row(at)
        return row[_GROUP:_LEVEL] + row[_COMM : _COMM + 4]

    @cached_property
    def seqs(self) -> array[int]:
        return self._words("seq")

    @cached_property
    def groups(self) -> array[int]:
        return self._words("group")

    @cached_property
    def ended(self) -> array[int]:
        """PACKED; 0: not yet."""
        return self._words("ended")

    @cached_property
    def outcomes(self) -> array[int]:
        """PACKED; `ENDED_WELL` or a word to look at."""
        return self._words("outcome")

    def tag(self, at: int) -> int:
        """Return the tag of a message."""
        start = at * OP_NBYTES + OP["value"].offset
        return int.from_bytes(self.data[start : start + 8], "little", signed=True)

    def peer(self, at: int) -> int:
        """Return the group rank that a message is with; -1: any."""
        start = at * OP_NBYTES + _PEER
        return int.from_bytes(self.data[start : start + 4], "little", signed=True)

    def _row(self, at: int) -> bytes:
        return self.data[at * OP_NBYTES : (at + 1) * OP_NBYTES]

    @cached_property
    def _all(self) -> array[int]:
        return to_array("Q", self.data)

    def _words(self, name: str) -> array[int]:
        return self._all[OP[name].offset // 8 :: WORDS]


def read_slice(
    source: ByteSource, tables: SectionTables, *, after: int, last: int, most: int
) -> Slice:
    """The entries with numbers from `after` + 1 to `last`, the newest `most`.

    It ends before the first that is not there yet, and begins behind the last that is not there any more.
    """
    table = tables[Section.RING]
    first = max(after + 1, last - min(most, table.count) + 1, 1)
    if last < first or table.entry_nbytes != OP_NBYTES:
        return Slice(last + 1, b"")
    data = b"".join(piece for _, piece in read_places(source, table, first, last))
    numbers = to_array("Q", data[: len(data) // OP_NBYTES * OP_NBYTES])[::WORDS]
    if numbers == array("Q", range(first, last + 1)):
        return Slice(first, data)
    begin, end = 0, len(numbers)
    for at, number in enumerate(numbers):
        if number != first + at:
            if number > first + at or at == begin:
                begin = at + 1  # overwritten, or about to be
            else:
                end = at
                break
    return Slice(first + begin, data[begin * OP_NBYTES : end * OP_NBYTES])
