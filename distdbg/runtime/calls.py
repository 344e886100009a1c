"""From arguments to a Call: everything one rank can check alone, before anything is sent.

Pure functions of the group's size, this rank and the arrays; `collectives.py` and
`group_methods.py` both build their Calls here, so both give the same errors.

Engines check single arrays (known dtype, contiguous, writable, dtype fits the reduce op), because
they must look at each anyway; `check_arrays` is that check for engines that have none of their own.
Here is what concerns several arguments at once.

An input that overlaps an output is copied first, except where the op is defined in place: the
input being exactly this rank's block of the output of all_gather and gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from distdbg.errors import UsageError
from distdbg.runtime.buffers import Buffer, as_input, as_output, copy_of, overlaps
from distdbg.runtime.call import Call, Kind
from distdbg.runtime.dtypes import Dtype
from distdbg.runtime.reduce_op import ReduceOp, check_reduce

#: An array as the user has it: NumPy, torch, DLPack or the buffer protocol. No common type exists.
Array: TypeAlias = Any

_PREMUL_SUM = ReduceOp.PREMUL_SUM.code


def check_arrays(call: Call) -> None:
    """Raise UsageError when an array of `call` cannot be used, or its dtype with the reduce op."""
    outputs = [as_output(array) for array in call.outputs]
    buffers = [as_input(array) for array in call.inputs] or outputs
    if call.op is not None and buffers:
        check_reduce(call.op, Dtype(buffers[0].dtype))


def all_reduce(array: Array, op: ReduceOp, timeout_s: float | None = None) -> Call:
    """Reduce in place. PREMUL_SUM scales a copy of this rank's part and sums."""
    source, op = _scaled(array, op)
    outputs = (array,)
    inputs = outputs if source is array else (source,)
    return Call(Kind.ALL_REDUCE, inputs, outputs, op, -1, -1, 0, None, None, timeout_s)


def broadcast(size: int, array: Array, root: int, timeout_s: float | None = None) -> Call:
    """Send the root's array to all, in place."""
    _check_rank("broadcast", "src", root, size)
    both = (array,)
    return Call(Kind.BROADCAST, both, both, None, root, -1, 0, None, None, timeout_s)


def reduce(
    size: int, rank: int, array: Array, root: int, op: ReduceOp, timeout_s: float | None = None
) -> Call:
    """Reduce into the root's array."""
    _check_rank("reduce", "dst", root, size)
    source, op = _scaled(array, op)
    outputs = (array,) if rank == root else ()
    return Call(Kind.REDUCE, (source,), outputs, op, root, -1, 0, None, None, timeout_s)


def all_gather(
    size: int,
    rank: int,
    outputs: Sequence[Array],
    array: Array,
    timeout_s: float | None = None,
    name: str | None = None,
) -> Call:
    """Collect one block from each rank, one output array per rank."""
    what = name or "all_gather"
    _check_list(what, "tensor_list", outputs, size)
    source = as_input(array)
    targets = [as_output(block) for block in outputs]
    _check_blocks(what, "tensor_list", targets, "tensor", source)
    array = _separate(array, source, targets, own=rank)
    return Call(
        Kind.ALL_GATHER, (array,), tuple(outputs), None, -1, -1, 0, None, None, timeout_s, name
    )


def all_gather_single(
    size: int, rank: int, output: Array, array: Array, timeout_s: float | None, name: str
) -> Call:
    """Collect one block from each rank, one after the other in one array."""
    source, target = as_input(array, "input"), as_output(output, "output")
    _check_dtypes(name, source, target)
    if target.count != size * source.count:
        raise UsageError(
            f"{name}: output_tensor has {target.count} elements, expected {size * source.count} "
            f"({size} ranks times {source.count})",
            details=[f"input_tensor {_shown(source)}, output_tensor {_shown(target)}"],
        )
    at = target.address + rank * source.nbytes
    if overlaps(source, target) and source.address != at:
        array = copy_of(array)
    return Call(Kind.ALL_GATHER, (array,), (output,), None, -1, -1, 0, None, None, timeout_s, name)


def gather(
    size: int,
    rank: int,
    array: Array,
    outputs: Sequence[Array] | None,
    root: int,
    timeout_s: float | None = None,
) -> Call:
    """Collect one block from each rank on the root."""
    _check_rank("gather", "dst", root, size)
    if rank != root:
        if outputs:
            raise UsageError(
                f"gather: gather_list was given on rank {rank}, but the root is {root}",
                hint="pass gather_list on the destination rank only",
            )
        return Call(Kind.GATHER, (array,), (), None, root, -1, 0, None, None, timeout_s)
    if outputs is None:
        raise UsageError("gather: gather_list is missing on the destination rank")
    _check_list("gather", "gather_list", outputs, size)
    source = as_input(array)
    targets = [as_output(block) for block in outputs]
    _check_blocks("gather", "gather_list", targets, "tensor", source)
    array = _separate(array, source, targets, own=rank)
    return Call(Kind.GATHER, (array,), tuple(outputs), None, root, -1, 0, None, None, timeout_s)


def scatter(
    size: int,
    rank: int,
    array: Array,
    inputs: Sequence[Array] | None,
    root: int,
    timeout_s: float | None = None,
) -> Call:
    """Give each rank its block of the root's list."""
    _check_rank("scatter", "src", root, size)
    if rank != root:
        if inputs:
            raise UsageError(
                f"scatter: scatter_list was given on rank {rank}, but the root is {root}",
                hint="pass scatter_list on the source rank only",
            )
        return Call(Kind.SCATTER, (), (array,), None, root, -1, 0, None, None, timeout_s)
    if inputs is None:
        raise UsageError("scatter: scatter_list is missing on the source rank")
    _check_list("scatter", "scatter_list", inputs, size)
    target = as_output(array)
    sources = [as_input(block) for block in inputs]
    _check_blocks("scatter", "scatter_list", sources, "tensor", target)
    blocks = _copied_where_overlapping(inputs, sources, [target])
    return Call(Kind.SCATTER, blocks, (array,), None, root, -1, 0, None, None, timeout_s)


def reduce_scatter(
    size: int,
    output: Array,
    inputs: Sequence[Array],
    op: ReduceOp,
    timeout_s: float | None = None,
) -> Call:
    """Reduce the lists block by block; each rank gets the block of its number."""
    _check_list("reduce_scatter", "input_list", inputs, size)
    target = as_output(output)
    sources = [as_input(block) for block in inputs]
    _check_blocks("reduce_scatter", "input_list", sources, "output", target)
    blocks = _copied_where_overlapping(inputs, sources, [target])
    scaled = [_scaled(block, op) for block in blocks]
    blocks, op = tuple(block for block, _ in scaled), scaled[0][1]
    return Call(Kind.REDUCE_SCATTER, blocks, (output,), op, -1, -1, 0, None, None, timeout_s)


def reduce_scatter_single(
    size: int, output: Array, array: Array, op: ReduceOp, timeout_s: float | None, name: str
) -> Call:
    """Reduce one array; each rank gets the part of its number."""
    source, target = as_input(array, "input"), as_output(output, "output")
    _check_dtypes(name, source, target)
    if source.count != size * target.count:
        raise UsageError(
            f"{name}: input has {source.count} elements, expected {size * target.count} "
            f"({size} ranks times {target.count})",
            details=[f"input {_shown(source)}, output {_shown(target)}"],
        )
    if overlaps(source, target):
        array = copy_of(array)
    array, op = _scaled(array, op)
    return Call(
        Kind.REDUCE_SCATTER, (array,), (output,), op, -1, -1, 0, None, None, timeout_s, name
    )


def all_to_all(
    size: int,
    rank: int,
    outputs: Sequence[Array],
    inputs: Sequence[Array],
    timeout_s: float | None = None,
) -> Call:
    """Give block r of the inputs to rank r; blocks may differ in size."""
    _check_list("all_to_all", "output_tensor_list", outputs, size)
    _check_list("all_to_all", "input_tensor_list", inputs, size)
    sources = [as_input(block) for block in inputs]
    targets = [as_output(block) for block in outputs]
    for buffer in (*sources, *targets):
        _check_dtypes("all_to_all", sources[0], buffer)
    if sources[rank].count != targets[rank].count:
        raise UsageError(
            f"all_to_all: the block from rank {rank} to itself has {sources[rank].count} elements "
            f"in input_tensor_list and {targets[rank].count} in output_tensor_list"
        )
    _check_apart("all_to_all", "output_tensor_list", targets)
    blocks = _copied_where_overlapping(inputs, sources, targets)
    return Call(Kind.ALL_TO_ALL, blocks, tuple(outputs), None, -1, -1, 0, None, None, timeout_s)


def all_to_all_single(
    size: int,
    rank: int,
    output: Array,
    array: Array,
    output_splits: Sequence[int] | None,
    input_splits: Sequence[int] | None,
    timeout_s: float | None = None,
) -> Call:
    """Cut along the first dimension, evenly or by the splits, and exchange the parts."""
    what = "all_to_all_single"
    source, target = as_input(array, "input"), as_output(output, "output")
    _check_dtypes(what, source, target)
    input_cut = _check_splits(what, "input", input_splits, source, size)
    output_cut = _check_splits(what, "output", output_splits, target, size)
    source_row, target_row = _row_count(source), _row_count(target)
    if source_row != target_row and source.count and target.count:
        raise UsageError(
            f"{what}: a row of input has {source_row} elements, a row of output {target_row}",
            details=[f"input {_shown(source)}, output {_shown(target)}"],
        )
    if input_cut[rank] != output_cut[rank]:
        raise UsageError(
            f"{what}: rank {rank} sends {input_cut[rank]} rows to itself "
            f"but expects {output_cut[rank]}"
        )
    if overlaps(source, target):
        array = copy_of(array)
    is_even = not input_splits and not output_splits
    return Call(
        Kind.ALL_TO_ALL,
        (array,),
        (output,),
        None,
        -1,
        -1,
        0,
        None if is_even else input_cut,
        None if is_even else output_cut,
        timeout_s,
        what,
    )


def send(size: int, array: Array, peer: int, tag: int, timeout_s: float | None = None) -> Call:
    """Send to one rank."""
    _check_rank("send", "dst", peer, size)
    _check_tag("send", tag)
    return Call(Kind.SEND, (array,), (), None, -1, peer, tag, None, None, timeout_s)


def recv(size: int, array: Array, peer: int, tag: int, timeout_s: float | None = None) -> Call:
    """Receive from one rank, or from any (-1)."""
    if peer != -1:
        _check_rank("recv", "src", peer, size)
    _check_tag("recv", tag)
    return Call(Kind.RECV, (), (array,), None, -1, peer, tag, None, None, timeout_s)


def barrier(timeout_s: float | None = None) -> Call:
    """Wait for all ranks."""
    return Call(Kind.BARRIER, (), (), None, -1, -1, 0, None, None, timeout_s)


def check_one_dtype(what: str, arrays: Sequence[Array]) -> None:
    """Raise UsageError when the arrays of one coalesced op differ in dtype."""
    buffers = [as_input(array) for array in arrays]
    for buffer in buffers:
        _check_dtypes(what, buffers[0], buffer)


def check_table(what: str, rows: Sequence[Sequence[Array]], size: int, width: int) -> None:
    """Raise UsageError when `rows` is not one list per rank with one array per input."""
    _check_list(what, "output_tensor_lists", rows, size)
    for rank, row in enumerate(rows):
        if len(row) != width:
            raise UsageError(
                f"{what}: output_tensor_lists[{rank}] has {len(row)} arrays, expected {width}, "
                "one for each input"
            )


# --- checks ------------------------------------------------------------------------------------


def _check_rank(what: str, argument: str, rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise UsageError(
            f"{what}: group rank {rank} given as {argument} is not in the group of {size} ranks"
        )


def _check_tag(what: str, tag: object) -> None:
    if not isinstance(tag, int) or tag < 0:
        raise UsageError(f"{what}: tag must be a number from 0 on, not {tag!r}")


def _check_list(what: str, argument: str, blocks: Sequence[Array], size: int) -> None:
    if not isinstance(blocks, (list, tuple)):
        raise UsageError(
            f"{what}: {argument} must be a list of {size} arrays, not {type(blocks).__name__}"
        )
    if len(blocks) != size:
        raise UsageError(
            f"{what}: {argument} has {len(blocks)} arrays, expected {size}, one for each rank"
        )


def _check_dtypes(what: str, first: Buffer, second: Buffer) -> None:
    if first.dtype != second.dtype:
        raise UsageError(
            f"{what}: arrays of one call must have one dtype, "
            f"got {_dtype_name(first)} and {_dtype_name(second)}"
        )


def _check_blocks(
    what: str, argument: str, blocks: Sequence[Buffer], other: str, like: Buffer
) -> None:
    for index, block in enumerate(blocks):
        _check_dtypes(what, block, like)
        if block.count != like.count:
            raise UsageError(
                f"{what}: {argument}[{index}] has {block.count} elements, {other} has {like.count}",
                details=[f"{argument}[{index}] {_shown(block)}, {other} {_shown(like)}"],
            )
    if argument in ("tensor_list", "gather_list"):  # the blocks that are written
        _check_apart(what, argument, blocks)


def _check_apart(what: str, argument: str, blocks: Sequence[Buffer]) -> None:
    """Outputs must not share memory: the result would depend on who comes first."""
    ordered = sorted((block.address, block.nbytes) for block in blocks if block.nbytes)
    for (low, nbytes), (high, _) in pairwise(ordered):
        if low + nbytes > high:
            raise UsageError(f"{what}: two arrays of {argument} share memory")


def _check_splits(
    what: str, side: str, splits: Sequence[int] | None, buffer: Buffer, size: int
) -> list[int]:
    rows = buffer.shape[0] if buffer.shape else buffer.count
    if not splits:
        if rows % size:
            raise UsageError(
                f"{what}: the first dimension of {side}, {rows}, is not a multiple of the "
                f"group's size {size}",
                hint=f"give {side}_split_sizes",
            )
        return [rows // size] * size
    if len(splits) != size:
        raise UsageError(f"{what}: {side}_split_sizes has {len(splits)} entries, expected {size}")
    cut = [int(rows_of_rank) for rows_of_rank in splits]
    if min(cut) < 0 or sum(cut) != rows:
        raise UsageError(
            f"{what}: {side}_split_sizes sum up to {sum(cut)}, "
            f"the first dimension of {side} is {rows}",
            details=[f"{side}_split_sizes {cut[:8]}{' ...' if size > 8 else ''}"],
        )
    return cut


def _row_count(buffer: Buffer) -> int:
    rows = buffer.shape[0] if buffer.shape else 1
    return buffer.count // rows if rows else 0


# --- what is done to the input first ------------------------------------------------------------


def _separate(array: Array, source: Buffer, targets: Sequence[Buffer], own: int) -> Array:
    """Copy the input when an output other than exactly its own block would overwrite it."""
    for index, target in enumerate(targets):
        if overlaps(source, target) and not (index == own and source.address == target.address):
            return copy_of(array)
    return array


def _copied_where_overlapping(
    arrays: Sequence[Array], sources: Sequence[Buffer], targets: Sequence[Buffer]
) -> tuple[Array, ...]:
    return tuple(
        copy_of(array) if any(overlaps(source, target) for target in targets) else array
        for array, source in zip(arrays, sources, strict=True)
    )


def _scaled(array: Array, op: ReduceOp) -> tuple[Array, ReduceOp]:
    """PREMUL_SUM: (a scaled copy, SUM); any other op: as it is."""
    if getattr(op, "code", None) != _PREMUL_SUM:
        return array, op  # also what is no reduce op at all: the engine's check
    check_reduce(op, Dtype(as_input(array).dtype))
    copy = copy_of(array)
    copy *= op.factor
    return copy, ReduceOp.SUM


def _dtype_name(buffer: Buffer) -> str:
    return Dtype(buffer.dtype).label


def _shown(buffer: Buffer) -> str:
    return f"{_dtype_name(buffer)}{list(buffer.shape)}"
