"""The calls of NCCL that carry out one Call: plain data, so they can be looked at without a device.

    all_gather, reduce_scatter     NCCL's own where the blocks are equal: those of a list are copied, unless
                                   they lie one after the other. Else one broadcast or reduce for each block,
                                   as one group
    gather, scatter, all_to_all    sends and receives, as one group; a rank's own block is copied
    barrier                        an all_reduce of one byte

Ranks may bring one array or a list to one op, and their memory may lie differently; NCCL needs the same calls
on all ranks. So what is called is decided by what all have alike: the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from distdbg.ops.call import Call, Kind
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.nccl.wire import Wire

#: A copy inside of the device: target, source, bytes; before NCCL's calls, or after all of them.
COPY = "copy"
COPY_AFTER = "copy after"


class NcclStep(NamedTuple):
    """A method of CuPy's NcclCommunicator with its arguments but the stream; or a copy."""

    method: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NcclBuffer:
    """Memory: where, and how many elements of NCCL's."""

    address: int
    count: int


class DeviceSides(NamedTuple):
    """What the steps of a Call depend on."""

    call: Call
    rank: int
    size: int
    inputs: Sequence[DeviceBuffer]
    outputs: Sequence[DeviceBuffer]
    wire: Wire
    #: NCCL's number of the reduce op.
    op: int
    #: Of a message: the other rank, by the communicator's numbers.
    peer: int
    #: Where the blocks of a list lie one after the other, if scratch_nbytes() asks for that.
    scratch: int = 0


def scratch_nbytes(sides: DeviceSides) -> int:
    """How much memory the steps need beside the arrays."""
    listed = _LISTED.get(sides.call.kind)
    if listed is None:
        return 0
    buffers = listed(sides)
    blocks = _blocks(sides, buffers)
    if _is_flat(sides, buffers) or not _are_equal(blocks) or _are_in_a_row(blocks, sides.wire):
        return 0
    return len(blocks) * blocks[0].count * sides.wire.itemsize


def steps_of(sides: DeviceSides) -> list[NcclStep]:
    """The steps in order; copies need no group."""
    return [step for step in _MAKERS[sides.call.kind](sides) if _does_something(step)]


def is_grouped(steps: Sequence[NcclStep]) -> bool:
    """Whether NCCL has to get them together."""
    return sum(step.method not in (COPY, COPY_AFTER) for step in steps) > 1


def _does_something(step: NcclStep) -> bool:
    # NCCL takes collectives of nothing; a message of nothing both sides leave out.
    return step.method not in ("send", "recv") or step.args[1] > 0


def _piece(buffer: DeviceBuffer, wire: Wire) -> NcclBuffer:
    return NcclBuffer(buffer.address, buffer.count * wire.width)


def _blocks(
    sides: DeviceSides, buffers: Sequence[DeviceBuffer], splits: Sequence[int] | None = None
) -> list[NcclBuffer]:
    """One piece for each rank: the arrays of a list, or a flat array cut evenly or by rows."""
    if not _is_flat(sides, buffers):
        return [_piece(buffer, sides.wire) for buffer in buffers]
    whole = _piece(buffers[0], sides.wire)
    if splits is None:
        counts = [whole.count // sides.size] * sides.size
    else:
        rows = sum(splits)
        counts = [split * (whole.count // rows if rows else 0) for split in splits]
    begins = [0, *accumulate(counts)]
    itemsize = sides.wire.itemsize
    return [
        NcclBuffer(whole.address + begin * itemsize, count)
        for begin, count in zip(begins, counts, strict=False)
    ]


def _is_flat(sides: DeviceSides, buffers: Sequence[DeviceBuffer]) -> bool:
    # A list op on a group of one also has one array; cut in one part it is the same piece.
    return len(buffers) == 1 and (sides.size > 1 or sides.call.name is not None)


def _are_equal(blocks: Sequence[NcclBuffer]) -> bool:
    return len({block.count for block in blocks}) == 1


def _are_in_a_row(blocks: Sequence[NcclBuffer], wire: Wire) -> bool:
    begin, nbytes = blocks[0].address, blocks[0].count * wire.itemsize
    return all(block.address == begin + i * nbytes for i, block in enumerate(blocks))


def _in_scratch(sides: DeviceSides, blocks: Sequence[NcclBuffer]) -> list[tuple[NcclBuffer, int]]:
    """Each block with the address of its place in the scratch memory; none where that is not needed."""
    nbytes = blocks[0].count * sides.wire.itemsize
    if not sides.scratch or not nbytes:
        return []
    return [(block, sides.scratch + i * nbytes) for i, block in enumerate(blocks)]


def _own(sides: DeviceSides, source: NcclBuffer, target: NcclBuffer) -> list[NcclStep]:
    if source.address == target.address or not source.count:
        return []
    nbytes = source.count * sides.wire.itemsize
    return [NcclStep(COPY, (target.address, source.address, nbytes))]


def _broadcast(sides: DeviceSides) -> list[NcclStep]:
    piece = _piece(sides.outputs[0], sides.wire)
    args = (piece.address, piece.address, piece.count, sides.wire.code, sides.call.root)
    return [NcclStep("broadcast", args)]


def _all_reduce(sides: DeviceSides) -> list[NcclStep]:
    source, target = sides.inputs[0].address, _piece(sides.outputs[0], sides.wire)
    args = (source, target.address, target.count, sides.wire.code, sides.op)
    return [NcclStep("allReduce", args)]


def _reduce(sides: DeviceSides) -> list[NcclStep]:
    source = _piece(sides.inputs[0], sides.wire)
    # Of ranks that are not the root NCCL reads no target.
    target = sides.outputs[0].address if sides.outputs else source.address
    args = (source.address, target, source.count, sides.wire.code, sides.op, sides.call.root)
    return [NcclStep("reduce", args)]


def _all_gather(sides: DeviceSides) -> list[NcclStep]:
    source = _piece(sides.inputs[0], sides.wire)
    blocks = _blocks(sides, sides.outputs)
    if _are_equal(blocks):
        target = sides.scratch or blocks[0].address
        nbytes = source.count * sides.wire.itemsize
        return [
            NcclStep("allGather", (source.address, target, source.count, sides.wire.code)),
            *(
                NcclStep(COPY_AFTER, (block.address, place, nbytes))
                for block, place in _in_scratch(sides, blocks)
            ),
        ]
    return [
        NcclStep(
            "broadcast",
            (
                source.address if root == sides.rank else block.address,
                block.address,
                block.count,
                sides.wire.code,
                root,
            ),
        )
        for root, block in enumerate(blocks)
    ]


def _reduce_scatter(sides: DeviceSides) -> list[NcclStep]:
    target = _piece(sides.outputs[0], sides.wire)
    blocks = _blocks(sides, sides.inputs)
    if _are_equal(blocks):
        source = sides.scratch or blocks[0].address
        nbytes = target.count * sides.wire.itemsize
        args = (source, target.address, target.count, sides.wire.code, sides.op)
        return [
            *(
                NcclStep(COPY, (place, block.address, nbytes))
                for block, place in _in_scratch(sides, blocks)
            ),
            NcclStep("reduceScatter", args),
        ]
    return [
        NcclStep(
            "reduce",
            (
                block.address,
                target.address if root == sides.rank else block.address,
                block.count,
                sides.wire.code,
                sides.op,
                root,
            ),
        )
        for root, block in enumerate(blocks)
    ]


def _gather(sides: DeviceSides) -> list[NcclStep]:
    source, code, root = _piece(sides.inputs[0], sides.wire), sides.wire.code, sides.call.root
    if sides.rank != root:
        return [NcclStep("send", (source.address, source.count, code, root))]
    targets = [_piece(buffer, sides.wire) for buffer in sides.outputs]
    return _own(sides, source, targets[root]) + [
        NcclStep("recv", (target.address, target.count, code, peer))
        for peer, target in enumerate(targets)
        if peer != root
    ]


def _scatter(sides: DeviceSides) -> list[NcclStep]:
    target, code, root = _piece(sides.outputs[0], sides.wire), sides.wire.code, sides.call.root
    if sides.rank != root:
        return [NcclStep("recv", (target.address, target.count, code, root))]
    sources = [_piece(buffer, sides.wire) for buffer in sides.inputs]
    return _own(sides, sources[root], target) + [
        NcclStep("send", (source.address, source.count, code, peer))
        for peer, source in enumerate(sources)
        if peer != root
    ]


def _all_to_all(sides: DeviceSides) -> list[NcclStep]:
    code = sides.wire.code
    sources = _blocks(sides, sides.inputs, sides.call.input_splits)
    targets = _blocks(sides, sides.outputs, sides.call.output_splits)
    steps = _own(sides, sources[sides.rank], targets[sides.rank])
    for peer, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if peer != sides.rank:
            steps.append(NcclStep("send", (source.address, source.count, code, peer)))
            steps.append(NcclStep("recv", (target.address, target.count, code, peer)))
    return steps


def _barrier(sides: DeviceSides) -> list[NcclStep]:
    return _all_reduce(sides)


def _send(sides: DeviceSides) -> list[NcclStep]:
    piece = _piece(sides.inputs[0], sides.wire)
    return [NcclStep("send", (piece.address, piece.count, sides.wire.code, sides.peer))]


def _recv(sides: DeviceSides) -> list[NcclStep]:
    piece = _piece(sides.outputs[0], sides.wire)
    return [NcclStep("recv", (piece.address, piece.count, sides.wire.code, sides.peer))]


#: The arrays of which are one block for each rank.
_LISTED: dict[Kind, Callable[[DeviceSides], Sequence[DeviceBuffer]]] = {
    Kind.ALL_GATHER: lambda sides: sides.outputs,
    Kind.REDUCE_SCATTER: lambda sides: sides.inputs,
}
_MAKERS: dict[Kind, Callable[[DeviceSides], list[NcclStep]]] = {
    Kind.BROADCAST: _broadcast,
    Kind.ALL_REDUCE: _all_reduce,
    Kind.REDUCE: _reduce,
    Kind.ALL_GATHER: _all_gather,
    Kind.GATHER: _gather,
    Kind.SCATTER: _scatter,
    Kind.REDUCE_SCATTER: _reduce_scatter,
    Kind.ALL_TO_ALL: _all_to_all,
    Kind.BARRIER: _barrier,
    Kind.SEND: _send,
    Kind.RECV: _recv,
}
