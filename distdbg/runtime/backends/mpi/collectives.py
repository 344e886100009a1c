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
from distdbg.runtime.backends.mpi import wide
from distdbg.runtime.backends.mpi.memory import (
    Piece,
    Started,
    apart,
    bytes_of,
    joined,
    room_for,
)
from distdbg.runtime.buffers import input_of, output_of
from distdbg.runtime.call import Call, Kind
from distdbg.runtime.dtypes import Dtype
from distdbg.runtime.reduce_op import RedOpType

if TYPE_CHECKING:
    from distdbg.runtime.backends.mpi.any_source import AnySource
    from distdbg.runtime.backends.mpi.library import Library


@dataclass(frozen=True, slots=True)
class Room:
    """One group's place in MPI."""

    library: Library
    comm: Any
    rank: int
    size: int
    any_source: AnySource | None = None
    """Where MPI's own receives from any rank are not to be relied on."""


def start(room: Room, call: Call) -> Started:
    """Start the collective; raises MPI's Exception."""
    started = Started([])
    _STARTERS[call.kind](room, call, started)
    return started


def take(arrays: Sequence[Any], started: Started) -> list[Piece]:
    """The memory of inputs."""
    buffers = [input_of(array) for array in arrays]
    started.keeps.extend(buffers)
    return [Piece.of(buffer) for buffer in buffers]


def give(arrays: Sequence[Any], started: Started) -> list[Piece]:
    """The memory of outputs; what is not contiguous is brought back when the op has ended."""
    buffers = [output_of(array) for array in arrays]
    started.keeps.extend(buffers)
    started.finish.extend(buffer.finish for buffer in buffers if buffer.finish is not None)
    return [Piece.of(buffer) for buffer in buffers]


def _spec(room: Room, piece: Piece) -> list[Any]:
    library = room.library
    return [bytes_of(library.MPI, piece), piece.count, library.datatypes.of(piece.dtype)]


def _cut_spec(room: Room, piece: Piece, counts: Sequence[int]) -> list[Any]:
    begins, begin = [], 0
    for count in counts:
        begins.append(begin)
        begin += count
    library = room.library
    return [bytes_of(library.MPI, piece), counts, begins, library.datatypes.of(piece.dtype)]


def _op(room: Room, call: Call, piece: Piece) -> Any:
    assert call.op is not None  # of a reduction
    return room.library.reductions.of(call.op.op, Dtype(piece.dtype))


def _divide_at_end(room: Room, call: Call, target: Piece, started: Started) -> None:
    """AVG: the sum is divided before anything is brought back, so it comes first."""
    assert call.op is not None  # of a reduction
    if call.op.op is RedOpType.AVG:
        view = View(bytes_of(room.library.MPI, target), True)
        started.finish.insert(0, partial(divide, target.dtype, view, room.size))


# ----------------------------------------------------------------------------- one for each kind


def _broadcast(room: Room, call: Call, started: Started) -> None:
    is_root = room.rank == call.root
    [piece] = take(call.inputs, started) if is_root else give(call.outputs, started)
    for part in room.library.parts(piece):
        started.requests.append(room.comm.Ibcast(_spec(room, part), root=call.root))


def _all_reduce(room: Room, call: Call, started: Started) -> None:
    [target] = give(call.outputs, started)
    source = None if call.inputs is call.outputs else take(call.inputs, started)[0]
    op = _op(room, call, target)
    _divide_at_end(room, call, target, started)
    for part in room.library.parts(target):
        if source is None or source.address == target.address:
            sends: Any = room.library.MPI.IN_PLACE
        else:
            begin = (part.address - target.address) // part.itemsize
            sends = _spec(room, source.part(begin, part.count))
        started.requests.append(room.comm.Iallreduce(sends, _spec(room, part), op))


def _reduce(room: Room, call: Call, started: Started) -> None:
    is_root = room.rank == call.root
    if is_root:
        [target] = give(call.outputs, started)
        _divide_at_end(room, call, target, started)
        in_place = call.inputs is call.outputs or call.inputs[0] is call.outputs[0]
        source = target if in_place else take(call.inputs, started)[0]
    else:
        [source] = take(call.inputs, started)
        target = source
    op = _op(room, call, source)
    for part in room.library.parts(source):
        sends: Any = _spec(room, part)
        begin = (part.address - source.address) // part.itemsize
        takes = _spec(room, target.part(begin, part.count)) if is_root else None
        if is_root and source.address == target.address:
            sends = room.library.MPI.IN_PLACE
        started.requests.append(room.comm.Ireduce(sends, takes, op, root=call.root))


def _all_gather(room: Room, call: Call, started: Started) -> None:
    [source] = take(call.inputs, started)
    pieces = give(call.outputs, started)
    counts = _counts(room, pieces)
    mpi = room.library.MPI
    if room.library.is_too_many(sum(counts)):
        blocks = pieces[0].cut(counts) if len(pieces) == 1 else pieces
        source = apart(mpi, source, blocks[room.rank], started)
        wide.exchange(room.library, room.comm, [source] * room.size, blocks, started)
        return
    whole = room_for(mpi, pieces, started)
    sends = _spec(room, apart(mpi, source, whole, started))
    if len(set(counts)) == 1:
        request = room.comm.Iallgather(sends, _even_spec(room, whole, counts[0]))
    else:
        request = room.comm.Iallgatherv(sends, _cut_spec(room, whole, counts))
    started.requests.append(request)


def _gather(room: Room, call: Call, started: Started) -> None:
    [source] = take(call.inputs, started)
    pieces = give(call.outputs, started)
    mpi = room.library.MPI
    if room.library.is_too_many(room.size * source.count):
        nothing = source.part(0, 0)
        sends = [source if rank == call.root else nothing for rank in range(room.size)]
        if pieces:
            sends[room.rank] = apart(mpi, source, pieces[room.rank], started)
        wide.exchange(room.library, room.comm, sends, pieces or [nothing] * room.size, started)
        return
    takes = None
    if pieces:
        whole = room_for(mpi, pieces, started)
        source = apart(mpi, source, whole, started)
        takes = _even_spec(room, whole, source.count)
    started.requests.append(room.comm.Igather(_spec(room, source), takes, root=call.root))


def _scatter(room: Room, call: Call, started: Started) -> None:
    [target] = give(call.outputs, started)
    pieces = take(call.inputs, started)
    if room.library.is_too_many(room.size * target.count):
        nothing = target.part(0, 0)
        takes = [target if rank == call.root else nothing for rank in range(room.size)]
        wide.exchange(room.library, room.comm, pieces or [nothing] * room.size, takes, started)
        return
    sends = None
    if pieces:
        mpi = room.library.MPI
        whole = apart(mpi, joined(mpi, pieces, started), target, started)
        sends = _even_spec(room, whole, target.count)
    started.requests.append(room.comm.Iscatter(sends, _spec(room, target), root=call.root))


def _reduce_scatter(room: Room, call: Call, started: Started) -> None:
    [target] = give(call.outputs, started)
    pieces = take(call.inputs, started)
    counts = _counts(room, pieces)
    op, mpi = _op(room, call, target), room.library.MPI
    _divide_at_end(room, call, target, started)
    if room.library.is_too_many(sum(counts)):
        blocks = pieces[0].cut(counts) if len(pieces) == 1 else pieces
        for root, block in enumerate(blocks):
            for part in room.library.parts(block):
                begin = (part.address - block.address) // part.itemsize
                takes = _spec(room, target.part(begin, part.count)) if root == room.rank else None
                request = room.comm.Ireduce(_spec(room, part), takes, op, root=root)
                started.requests.append(request)
        return
    whole = apart(mpi, joined(mpi, pieces, started), target, started)
    if len(set(counts)) == 1:
        sends = _even_spec(room, whole, target.count)
        request = room.comm.Ireduce_scatter_block(sends, _spec(room, target), op)
    else:
        request = room.comm.Ireduce_scatter(_spec(room, whole), _spec(room, target), counts, op)
    started.requests.append(request)


def _all_to_all(room: Room, call: Call, started: Started) -> None:
    sources = take(call.inputs, started)
    targets = give(call.outputs, started)
    sends = _rows(room, call.input_splits, call.inputs, sources)
    takes = _rows(room, call.output_splits, call.outputs, targets)
    mpi = room.library.MPI
    # How many elements this rank has, the others cannot know: so all decide by the library alone.
    if not room.library.has_large_counts:
        blocks_out = sources[0].cut(sends) if len(sources) == 1 else sources
        blocks_in = targets[0].cut(takes) if len(targets) == 1 else targets
        wide.exchange(room.library, room.comm, blocks_out, blocks_in, started)
        return
    source, target = joined(mpi, sources, started), room_for(mpi, targets, started)
    started.requests.append(
        room.comm.Ialltoallv(_cut_spec(room, source, sends), _cut_spec(room, target, takes))
    )


def _barrier(room: Room, call: Call, started: Started) -> None:
    started.requests.append(room.comm.Ibarrier())


_STARTERS: dict[Kind, Callable[[Room, Call, Started], None]] = {
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


def _even_spec(room: Room, whole: Piece, count: int) -> list[Any]:
    library = room.library
    return [bytes_of(library.MPI, whole), count, library.datatypes.of(whole.dtype)]


def _counts(room: Room, pieces: Sequence[Piece]) -> list[int]:
    """Elements of each rank's block."""
    if len(pieces) == room.size:
        return [piece.count for piece in pieces]
    return [pieces[0].count // room.size] * room.size


def _rows(
    room: Room, splits: Sequence[int] | None, arrays: Sequence[Any], pieces: Sequence[Piece]
) -> list[int]:
    """Elements of each rank's block, of a flat array by rows of its first dimension."""
    if splits is None:
        return _counts(room, pieces)
    rows = sum(splits)
    row = pieces[0].count // rows if rows else 0
    return [row * split for split in splits]
