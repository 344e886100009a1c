"""From one op to what a rank gives to the others and does with what they give: plain data.

Each rank reads the memory of its peers, or, where they all get the same, writes it as well:

    broadcast         copies the root's array
    all_reduce        adds up its part of all arrays, and writes the sum into all of them
    reduce            the same into the root's
    all_gather, gather, scatter, all_to_all    copy blocks
    reduce_scatter    adds up its block of all ranks

So an element is added up once, by one rank, in the order of the ranks, and results are bit for bit the same
on all of them; and an op needs two exchanges: before any memory is touched, and after all is done. An
all_reduce in two halves, each of which only reads, would need a third one between them, and would
move half as many bytes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from distdbg.ops.call import Kind
from distdbg.runtime.backends.gpu.chunks import DeviceBlock

#: Parts of arrays begin at multiples of it, so that they are read in words of this size.
WORD_NBYTES: Final = 16


class OpBlocks(NamedTuple):
    """One rank's blocks of one op. A flat array that stands for blocks is cut already."""

    kind: Kind
    rank: int
    size: int
    root: int
    inputs: Sequence[DeviceBlock]
    outputs: Sequence[DeviceBlock]


class PeerBuffers(NamedTuple):
    """What one rank lets the others use, by this rank's addresses."""

    #: What this rank reads of it.
    source: DeviceBlock | None
    #: What all write.
    target: DeviceBlock | None


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


def source_blocks(op: OpBlocks) -> list[DeviceBlock]:
    """What the others read: one block for all of them, or one for each."""
    if op.kind is Kind.BROADCAST and op.rank != op.root:
        return []
    return list(op.inputs)


def target_block(op: OpBlocks) -> DeviceBlock | None:
    """What the others write."""
    if op.kind is Kind.ALL_REDUCE or (op.kind is Kind.REDUCE and op.rank == op.root):
        return op.outputs[0]
    return None


def recv_nbytes(op: OpBlocks) -> list[int]:
    """How many bytes this rank expects of each; [] where it reads nothing."""
    kind, size = op.kind, op.size
    if kind in _REDUCES:
        return [op.inputs[0].nbytes] * size
    if kind is Kind.REDUCE_SCATTER:
        return [op.outputs[0].nbytes] * size
    if kind in (Kind.ALL_GATHER, Kind.GATHER, Kind.ALL_TO_ALL):
        return [block.nbytes for block in op.outputs]
    if kind is Kind.BROADCAST and op.rank == op.root:
        return []
    own = op.outputs[0].nbytes
    return [own if rank == op.root else 0 for rank in range(size)]


def schedule(
    op: OpBlocks, peers: Sequence[PeerBuffers], itemsize: int
) -> tuple[list[Copy], list[Reduction]]:
    """What this rank does when all have said what they give."""
    kind = op.kind
    if kind in _REDUCES:
        return [], _part(op, peers, itemsize)
    if kind is Kind.REDUCE_SCATTER:
        own = op.outputs[0]
        sources = tuple([_source(each).address for each in peers])
        return [], [Reduction((own.address,), sources, own.nbytes)] if own.nbytes else []
    if kind in (Kind.ALL_GATHER, Kind.GATHER, Kind.ALL_TO_ALL):
        pairs = [(out, _source(each)) for out, each in zip(op.outputs, peers, strict=False)]
    elif kind is Kind.BROADCAST and op.rank == op.root:
        pairs = []
    else:
        pairs = [(op.outputs[0], _source(peers[op.root]))]
    return [
        Copy(out.address, source.address, out.nbytes)
        for out, source in pairs
        if out.nbytes and out.address != source.address
    ], []


def _part(op: OpBlocks, peers: Sequence[PeerBuffers], itemsize: int) -> list[Reduction]:
    """This rank's part of all arrays."""
    nbytes = op.inputs[0].nbytes
    word = max(WORD_NBYTES, itemsize)
    step = -(-nbytes // (word * op.size)) * word
    start = min(nbytes, op.rank * step)
    length = min(step, nbytes - start)
    if not length:
        return []
    return [
        Reduction(
            tuple([each.target.address + start for each in peers if each.target is not None]),
            tuple([_source(each).address + start for each in peers]),
            length,
        )
    ]


def _source(peers: PeerBuffers) -> DeviceBlock:
    assert peers.source is not None  # fits() has looked
    return peers.source
