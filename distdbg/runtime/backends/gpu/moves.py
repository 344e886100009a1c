"""From one op to what a rank gives to the others and does with what they give: plain data.

Each rank reads the memory of its peers, or, where they all get the same, writes it as well:

    broadcast         copies the root's array
    all_reduce        adds up its part of all arrays, and writes the sum into all of them
    reduce            the same into the root's
    all_gather, gather, scatter, all_to_all    copy blocks
    reduce_scatter    adds up its block of all ranks

So an element is added up once, by one rank, in the order of the ranks, and results are bit for bit the same
on all of them; and an op needs two meetings: before any memory is touched, and after all is done. An
all_reduce in two halves, each of which only reads, would need a third one between them, and would
move half as many bytes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from distdbg.runtime.backends.gpu.chunks import Block
from distdbg.runtime.call import Kind

#: Parts of arrays begin at multiples of it, so that they are read in words of this size.
WORD_NBYTES: Final = 16


class Side(NamedTuple):
    """One rank's blocks of one op. A flat array that stands for blocks is cut already."""

    kind: Kind
    rank: int
    size: int
    root: int
    inputs: Sequence[Block]
    outputs: Sequence[Block]


class Given(NamedTuple):
    """What one rank lets the others use, by this rank's addresses."""

    #: What this rank reads of it.
    source: Block | None
    #: What all write.
    target: Block | None


class Copy(NamedTuple):
    """From one address to another."""

    target: int
    source: int
    nbytes: int


class Reduction(NamedTuple):
    """Add up the sources, in this order, and write the result into each target."""

    targets: tuple[int, ...]
    sources: tuple[int, ...]
    nbytes: int


_REDUCES: Final = (Kind.ALL_REDUCE, Kind.REDUCE)


def gives(side: Side) -> list[Block]:
    """What the others read: one block for all of them, or one for each."""
    if side.kind is Kind.BROADCAST and side.rank != side.root:
        return []
    return list(side.inputs)


def target(side: Side) -> Block | None:
    """What the others write."""
    if side.kind is Kind.ALL_REDUCE or (side.kind is Kind.REDUCE and side.rank == side.root):
        return side.outputs[0]
    return None


def takes(side: Side) -> list[int]:
    """How many bytes this rank expects of each; [] where it reads nothing."""
    kind, size = side.kind, side.size
    if kind in _REDUCES:
        return [side.inputs[0].nbytes] * size
    if kind is Kind.REDUCE_SCATTER:
        return [side.outputs[0].nbytes] * size
    if kind in (Kind.ALL_GATHER, Kind.GATHER, Kind.ALL_TO_ALL):
        return [block.nbytes for block in side.outputs]
    if kind is Kind.BROADCAST and side.rank == side.root:
        return []
    own = side.outputs[0].nbytes
    return [own if rank == side.root else 0 for rank in range(size)]


def moves(side: Side, given: Sequence[Given], itemsize: int) -> tuple[list[Copy], list[Reduction]]:
    """What this rank does when all have said what they give."""
    kind = side.kind
    if kind in _REDUCES:
        return [], _part(side, given, itemsize)
    if kind is Kind.REDUCE_SCATTER:
        own = side.outputs[0]
        sources = tuple([_source(each).address for each in given])
        return [], [Reduction((own.address,), sources, own.nbytes)] if own.nbytes else []
    if kind in (Kind.ALL_GATHER, Kind.GATHER, Kind.ALL_TO_ALL):
        pairs = [(out, _source(each)) for out, each in zip(side.outputs, given, strict=False)]
    elif kind is Kind.BROADCAST and side.rank == side.root:
        pairs = []
    else:
        pairs = [(side.outputs[0], _source(given[side.root]))]
    return [
        Copy(out.address, source.address, out.nbytes)
        for out, source in pairs
        if out.nbytes and out.address != source.address
    ], []


def _part(side: Side, given: Sequence[Given], itemsize: int) -> list[Reduction]:
    """This rank's part of all arrays."""
    nbytes = side.inputs[0].nbytes
    word = max(WORD_NBYTES, itemsize)
    step = -(-nbytes // (word * side.size)) * word
    start = min(nbytes, side.rank * step)
    length = min(step, nbytes - start)
    if not length:
        return []
    return [
        Reduction(
            tuple([each.target.address + start for each in given if each.target is not None]),
            tuple([_source(each).address + start for each in given]),
            length,
        )
    ]


def _source(given: Given) -> Block:
    assert given.source is not None  # fits() has looked
    return given.source
