"""In which order gloo adds up, so that a plan can do so too: results are then its results to the last bit.

gloo cuts an array into a chunk for each rank, and passes the chunks down a ring: chunk c begins at rank c - 1
and goes to c - 2 and so on, and rank c is the last to add. A chunk consists of two segments or more, of 1 MiB
at most, and they decide how large it is. It shows in floating point numbers of more than two ranks: of two,
a + b is b + a.

    all_reduce        one ring for the array; arrays that are reduced as one lie one after the other in it
    reduce            one ring for the array, whose segments are cut in another way
    reduce_scatter    one ring for the whole input, if that is one array; else one for each block

Known of torch 2.13 and 2.14, whose results were compared with this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: What one message of gloo's carries at most.
SEGMENT_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class GlooOrder:
    """The order for each block of a call."""

    size: int
    #: Of each block: where in its ring it begins, and how large the chunks of the ring are.
    rings: tuple[tuple[int, int], ...]

    def runs(self, block: int, offset: int, nbytes: int) -> Iterator[tuple[int, int, int]]:
        """Cut a range of a block into (offset, nbytes, rank that begins): the ranks before it follow."""
        begin, chunk_nbytes = self.rings[block]
        end = offset + nbytes
        while offset < end:
            chunk = (begin + offset) // chunk_nbytes
            until = min(end, (chunk + 1) * chunk_nbytes - begin)
            yield offset, until - offset, (chunk - 1) % self.size
            offset = until


def down_from(first: int, size: int) -> list[int]:
    """The ranks in the order in which a chunk that begins at `first` passes them."""
    return [(first - i) % size for i in range(size)]


def order_of_all_reduce(nbytes: int, size: int, itemsize: int, begin: int = 0) -> GlooOrder:
    """The order of an all_reduce: of an array that begins there in a ring of so many bytes."""
    return GlooOrder(size, ((begin, _chunk_nbytes(nbytes, size, itemsize)),))


def order_of_reduce(nbytes: int, size: int, itemsize: int) -> GlooOrder:
    """The order of a reduce of so many bytes, to any root."""
    most = SEGMENT_NBYTES // itemsize * itemsize
    segment = max(_up(min(-(-nbytes // (2 * size)), most), itemsize), itemsize)
    count = _up(max(-(-nbytes // segment), 2 * size), size)
    return GlooOrder(size, ((0, segment * (count // size)),))


def order_of_reduce_scatter(blocks: Sequence[int], itemsize: int, *, is_list: bool) -> GlooOrder:
    """The order of a reduce_scatter: of a list of arrays, or of one array with all blocks."""
    size = len(blocks)
    if is_list:
        rings = tuple([(0, _chunk_nbytes(nbytes, size, itemsize)) for nbytes in blocks])
        return GlooOrder(size, rings)
    chunk_nbytes = _chunk_nbytes(sum(blocks), size, itemsize)
    begins = [sum(blocks[:block]) for block in range(size)]
    return GlooOrder(size, tuple([(begin, chunk_nbytes) for begin in begins]))


def _chunk_nbytes(nbytes: int, size: int, itemsize: int) -> int:
    """Of an all_reduce: the segments are as equal as they can be."""
    most = SEGMENT_NBYTES // itemsize * itemsize
    count = _up(max(-(-nbytes // most), 2 * size), size)
    segment = max(_up(-(-nbytes // count), itemsize), itemsize)
    return segment * (count // size)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
