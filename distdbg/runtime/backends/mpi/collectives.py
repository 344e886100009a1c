"""Starts MPI's non-blocking collectives for our Calls.

Arrays in a list are brought into one piece of memory and back, since MPI takes one. More elements than the
library can count go through wide.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from distdbg.native import View, divide
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType
from distdbg.runtime.arrays.buffers import input_of, output_of
from distdbg.runtime.backends.mpi import wide
from distdbg.runtime.backends.mpi.memory import (
    MpiBuffer,
    MpiRequests,
    apart,
    bytes_of,
    joined,
    room_for,
)

if TYPE_CHECKING:
    from distdbg.runtime.backends.mpi.any_source import AnySource
    from distdbg.runtime.backends.mpi.library import MpiLibrary


@dataclass(frozen=True, slots=True)
class MpiGroup:
    """What MPI has of one group: its communicator, and this rank in it."""

    library: MpiLibrary
    comm: Any
    rank: int
    size: int
    any_source: AnySource | None = None
    """Where MPI's own receives from any rank are not to be relied on."""


def start(group: MpiGroup, call: Call) -> MpiRequests:
    """Start the collective; raises MPI's Exception."""
    started = MpiRequests([])
    _STARTERS[call.kind](group, call, started)
    return started


def take(arrays: Sequence[Any], started: MpiRequests) -> list[MpiBuffer]:
    """The memory of inputs."""
    buffers = [input_of(array) for array in arrays]
    started.keeps.extend(buffers)
    return [MpiBuffer.of(buffer) for buffer in buffers]


def give(arrays: Sequence[Any], started: MpiRequests) -> list[MpiBuffer]:
    """The memory of outputs; what is not contiguous is brought back when the op has ended."""
    buffers = [output_of(array) for array in arrays]
    started.keeps.extend(buffers)
    started.finish.extend(buffer.finish for buffer in buffers if buffer.finish is not None)
    return [MpiBuffer.of(buffer) for buffer in buffers]


def _spec(group: MpiGroup, piece: MpiBuffer) -> list[Any]:
    library = group.library
    return [bytes_of(library.MPI, piece), piece.count, library.datatypes.of(piece.dtype)]


def _cut_spec(group: MpiGroup, piece: MpiBuffer, counts: Sequence[int]) -> list[Any]:
    begins, begin = [], 0
    for count in counts:
        begins.append(begin)
        begin += count
    library = group.library
    return [bytes_of(library.MPI, piece), counts, begins, library.datatypes.of(piece.dtype)]


def _op(group: MpiGroup, call: Call, piece: MpiBuffer) -> Any:
    assert call.op is not None  # of a reduction
    return group.library.reductions.of(call.op.op, Dtype(piece.dtype))


def _divide_at_end(group: MpiGroup, call: Call, target: MpiBuffer, started: MpiRequests) -> None:
    """AVG: the sum is divided before anything is brought back, so it comes first."""
    assert call.op is not None  # of a reduction
    if call.op.op is RedOpType.AVG:
        view = View(bytes_of(group.library.MPI, target), True)
        started.finish.insert(0, partial(divide, target.dtype, view, group.size))


# ----------------------------------------------------------------------------- one for each kind


def _broadcast(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    is_root = group.rank == call.root
    [piece] = take(call.inputs, started) if is_root else give(call.outputs, started)
    for part in group.library.parts(piece):
        started.requests.append(group.comm.Ibcast(_spec(group, part), root=call.root))


def _all_reduce(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    [target] = give(call.outputs, started)
    source = None if call.inputs is call.outputs else take(call.inputs, started)[0]
    op = _op(group, call, target)
    _divide_at_end(group, call, target, started)
    for part in group.library.parts(target):
        if source is None or source.address == target.address:
            sends: Any = group.library.MPI.IN_PLACE
        else:
            begin = (part.address - target.address) // part.itemsize
            sends = _spec(group, source.part(begin, part.count))
        started.requests.append(group.comm.Iallreduce(sends, _spec(group, part), op))


def _reduce(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    is_root = group.rank == call.root
    if is_root:
        [target] = give(call.outputs, started)
        _divide_at_end(group, call, target, started)
        in_place = call.inputs is call.outputs or call.inputs[0] is call.outputs[0]
        source = target if in_place else take(call.inputs, started)[0]
    else:
        [source] = take(call.inputs, started)
        target = source
    op = _op(group, call, source)
    for part in group.library.parts(source):
        sends: Any = _spec(group, part)
        begin = (part.address - source.address) // part.itemsize
        takes = _spec(group, target.part(begin, part.count)) if is_root else None
        if is_root and source.address == target.address:
            sends = group.library.MPI.IN_PLACE
        started.requests.append(group.comm.Ireduce(sends, takes, op, root=call.root))


def _all_gather(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    [source] = take(call.inputs, started)
    pieces = give(call.outputs, started)
    counts = _counts(group, pieces)
    mpi = group.library.MPI
    if group.library.is_too_many(sum(counts)):
        blocks = pieces[0].cut(counts) if len(pieces) == 1 else pieces
        source = apart(mpi, source, blocks[group.rank], started)
        wide.exchange(group.library, group.comm, [source] * group.size, blocks, started)
        return
    whole = room_for(mpi, pieces, started)
    sends = _spec(group, apart(mpi, source, whole, started))
    if len(set(counts)) == 1:
        request = group.comm.Iallgather(sends, _even_spec(group, whole, counts[0]))
    else:
        request = group.comm.Iallgatherv(sends, _cut_spec(group, whole, counts))
    started.requests.append(request)


def _gather(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    [source] = take(call.inputs, started)
    pieces = give(call.outputs, started)
    mpi = group.library.MPI
    if group.library.is_too_many(group.size * source.count):
        nothing = source.part(0, 0)
        sends = [source if rank == call.root else nothing for rank in range(group.size)]
        if pieces:
            sends[group.rank] = apart(mpi, source, pieces[group.rank], started)
        wide.exchange(group.library, group.comm, sends, pieces or [nothing] * group.size, started)
        return
    takes = None
    if pieces:
        whole = room_for(mpi, pieces, started)
        source = apart(mpi, source, whole, started)
        takes = _even_spec(group, whole, source.count)
    started.requests.append(group.comm.Igather(_spec(group, source), takes, root=call.root))


def _scatter(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    [target] = give(call.outputs, started)
    pieces = take(call.inputs, started)
    if group.library.is_too_many(group.size * target.count):
        nothing = target.part(0, 0)
        takes = [target if rank == call.root else nothing for rank in range(group.size)]
        wide.exchange(group.library, group.comm, pieces or [nothing] * group.size, takes, started)
        return
    sends = None
    if pieces:
        mpi = group.library.MPI
        whole = apart(mpi, joined(mpi, pieces, started), target, started)
        sends = _even_spec(group, whole, target.count)
    started.requests.append(group.comm.Iscatter(sends, _spec(group, target), root=call.root))


def _reduce_scatter(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    [target] = give(call.outputs, started)
    pieces = take(call.inputs, started)
    counts = _counts(group, pieces)
    op, mpi = _op(group, call, target), group.library.MPI
    _divide_at_end(group, call, target, started)
    if group.library.is_too_many(sum(counts)):
        blocks = pieces[0].cut(counts) if len(pieces) == 1 else pieces
        for root, block in enumerate(blocks):
            for part in group.library.parts(block):
                begin = (part.address - block.address) // part.itemsize
                takes = _spec(group, target.part(begin, part.count)) if root == group.rank else None
                request = group.comm.Ireduce(_spec(group, part), takes, op, root=root)
                started.requests.append(request)
        return
    whole = apart(mpi, joined(mpi, pieces, started), target, started)
    if len(set(counts)) == 1:
        sends = _even_spec(group, whole, target.count)
        request = group.comm.Ireduce_scatter_block(sends, _spec(group, target), op)
    else:
        request = group.comm.Ireduce_scatter(_spec(group, whole), _spec(group, target), counts, op)
    started.requests.append(request)


def _all_to_all(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    sources = take(call.inputs, started)
    targets = give(call.outputs, started)
    sends = _rows(group, call.input_splits, call.inputs, sources)
    takes = _rows(group, call.output_splits, call.outputs, targets)
    mpi = group.library.MPI
    # How many elements this rank has, the others cannot know: so all decide by the library alone.
    if not group.library.has_large_counts:
        blocks_out = sources[0].cut(sends) if len(sources) == 1 else sources
        blocks_in = targets[0].cut(takes) if len(targets) == 1 else targets
        wide.exchange(group.library, group.comm, blocks_out, blocks_in, started)
        return
    source, target = joined(mpi, sources, started), room_for(mpi, targets, started)
    started.requests.append(
        group.comm.Ialltoallv(_cut_spec(group, source, sends), _cut_spec(group, target, takes))
    )


def _barrier(group: MpiGroup, call: Call, started: MpiRequests) -> None:
    started.requests.append(group.comm.Ibarrier())


_STARTERS: dict[Kind, Callable[[MpiGroup, Call, MpiRequests], None]] = {
    Kind.BROADCAST: _broadcast,
    Kind.ALL_REDUCE: _all_reduce,
    Kind.REDUCE: _reduce,
    Kind.ALL_GATHER: _all_gather,
    Kind.GATHER: _gather,
    Kind.SCATTER: _scatter,
    Kind.REDUCE_SCATTER: _reduce_scatter,
    Kind.ALL_TO_ALL: _all_to_all,
    Kind.BARRIER: _barrier,
}


def _even_spec(group: MpiGroup, whole: MpiBuffer, count: int) -> list[Any]:
    library = group.library
    return [bytes_of(library.MPI, whole), count, library.datatypes.of(whole.dtype)]


def _counts(group: MpiGroup, pieces: Sequence[MpiBuffer]) -> list[int]:
    """Elements of each rank's block."""
    if len(pieces) == group.size:
        return [piece.count for piece in pieces]
    return [pieces[0].count // group.size] * group.size


def _rows(
    group: MpiGroup,
    splits: Sequence[int] | None,
    arrays: Sequence[Any],
    pieces: Sequence[MpiBuffer],
) -> list[int]:
    """Elements of each rank's block, of a flat array by rows of its first dimension."""
    if splits is None:
        return _counts(group, pieces)
    rows = sum(splits)
    row = pieces[0].count // rows if rows else 0
    return [row * split for split in splits]
