"""Checks arguments, and prepares inputs, before a Call is made of them.

Engines check single arrays (known dtype, contiguous, writable), because they must look at each
anyway; `check_arrays` is that check for engines that have none of their own.
All the others concern several arguments at once. Errors are UsageErrors; nothing was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.call import Call
from distdbg.ops.dtypes import FROM_NUMPY, Dtype
from distdbg.ops.reduce_op import ReduceOp, check_reduce
from distdbg.runtime.api.integers import to_int, to_ints
from distdbg.runtime.arrays.buffers import (
    Buffer,
    as_input,
    as_output,
    copy_of,
    input_of,
    output_of,
    overlaps,
)
from distdbg.runtime.arrays.capture import refuse_captured
from distdbg.runtime.arrays.device_arrays import is_on_device

#: An array as the user has it: NumPy, torch, DLPack or the buffer protocol. No common type exists.
Array: TypeAlias = Any

_ndarray = np.ndarray
_SUM = ReduceOp.SUM
_PREMUL_SUM = ReduceOp.PREMUL_SUM.code
#: What a message has room for.
_LARGEST_TAG = 2**63 - 1


def check_arrays(call: Call, *, also_on_gpu: bool = False) -> None:
    """Raise UsageError when an array of `call` cannot be used, or its dtype with the reduce op."""
    if also_on_gpu:
        refuse_captured(call.name or call.kind.label, (*call.inputs, *call.outputs))
    to_input, to_output = (input_of, output_of) if also_on_gpu else (as_input, as_output)
    outputs = [to_output(array) for array in call.outputs]
    buffers = [to_input(array) for array in call.inputs] or outputs
    if call.op is not None and buffers:
        check_reduce(call.op, Dtype(buffers[0].dtype))


def check_one_dtype(what: str, arrays: Sequence[Array]) -> None:
    """Raise UsageError when the arrays of one coalesced op differ in dtype."""
    buffers = [input_of(array) for array in arrays]
    for buffer in buffers:
        check_dtypes(what, buffers[0], buffer)


def check_table(what: str, rows: Sequence[Sequence[Array]], size: int, width: int) -> None:
    """Raise UsageError when `rows` is not one list per rank with one array per input."""
    check_list(what, "output_tensor_lists", rows, size)
    for rank, row in enumerate(rows):
        if not isinstance(row, (list, tuple)):
            raise WrongTypeError(
                f"{what}: output_tensor_lists[{rank}] must be a list of {width} arrays, "
                f"not {type(row).__name__}"
            )
        if len(row) != width:
            raise UsageError(
                f"{what}: output_tensor_lists[{rank}] has {len(row)} arrays, expected {width}, "
                "one for each input"
            )


def check_rank(what: str, argument: str, rank: int, size: int) -> int:
    rank = to_int(what, argument, rank)
    if not 0 <= rank < size:
        raise UsageError(
            f"{what}: group rank {rank} given as {argument} is not in the group of {size} ranks"
        )
    return rank


def check_tag(what: str, tag: int) -> int:
    tag = to_int(what, "tag", tag)
    if not 0 <= tag <= _LARGEST_TAG:
        raise UsageError(f"{what}: tag must be a number from 0 to {_LARGEST_TAG}, not {tag}")
    return tag


def check_list(what: str, argument: str, blocks: Sequence[Array], size: int) -> None:
    if not isinstance(blocks, (list, tuple)):
        raise WrongTypeError(
            f"{what}: {argument} must be a list of {size} arrays, not {type(blocks).__name__}"
        )
    if len(blocks) != size:
        raise UsageError(
            f"{what}: {argument} has {len(blocks)} arrays, expected {size}, one for each rank"
        )


def check_dtypes(what: str, first: Buffer, second: Buffer) -> None:
    if first.dtype != second.dtype:
        raise UsageError(
            f"{what}: arrays of one call must have one dtype, "
            f"got {_dtype_name(first)} and {_dtype_name(second)}"
        )


def check_blocks(
    what: str, argument: str, blocks: Sequence[Buffer], other: str, like: Buffer
) -> None:
    for index, block in enumerate(blocks):
        check_dtypes(what, block, like)
        if block.count != like.count:
            raise UsageError(
                f"{what}: {argument}[{index}] has {block.count} elements, {other} has {like.count}",
                details=[f"{argument}[{index}] {show(block)}, {other} {show(like)}"],
            )
    if argument == "gather_list":  # the blocks that are written
        check_apart(what, argument, blocks)


def check_own_block(
    what: str, argument: str, blocks: Sequence[Buffer], rank: int, other: str, like: Buffer
) -> None:
    """Blocks may differ in size; that all ranks mean the same sizes is seen when they meet."""
    for block in blocks:
        check_dtypes(what, block, like)
    if blocks[rank].count != like.count:
        raise UsageError(
            f"{what}: {argument}[{rank}] has {blocks[rank].count} elements, "
            f"{other} of rank {rank} has {like.count}",
            details=[f"{argument}[{rank}] {show(blocks[rank])}, {other} {show(like)}"],
        )


def check_apart(what: str, argument: str, blocks: Sequence[Buffer]) -> None:
    """Outputs must not share memory: the result would depend on who comes first."""
    ordered = sorted((block.address, block.nbytes) for block in blocks if block.nbytes)
    for (low, nbytes), (high, _) in pairwise(ordered):
        if low + nbytes > high:
            raise UsageError(f"{what}: two arrays of {argument} share memory")


def check_splits(
    what: str, side: str, splits: Sequence[int] | None, buffer: Buffer, size: int
) -> list[int]:
    rows = buffer.shape[0] if buffer.shape else buffer.count
    # Not by its truth: an array of several numbers has none.
    cut = [] if splits is None else to_ints(what, f"{side}_split_sizes", splits)
    if not cut:
        if rows % size:
            raise UsageError(
                f"{what}: the first dimension of {side}, {rows}, is not a multiple of the "
                f"group's size {size}",
                hint=f"give {side}_split_sizes",
            )
        return [rows // size] * size
    if len(cut) != size:
        raise UsageError(f"{what}: {side}_split_sizes has {len(cut)} entries, expected {size}")
    if min(cut) < 0:
        raise UsageError(
            f"{what}: {side}_split_sizes has {min(cut)}, and no split is below 0",
            details=[f"{side}_split_sizes {cut[:8]}{' ...' if size > 8 else ''}"],
        )
    if sum(cut) != rows:
        raise UsageError(
            f"{what}: {side}_split_sizes sum up to {sum(cut)}, "
            f"the first dimension of {side} is {rows}",
            details=[f"{side}_split_sizes {cut[:8]}{' ...' if size > 8 else ''}"],
        )
    return cut


def row_count(buffer: Buffer) -> int:
    rows = buffer.shape[0] if buffer.shape else 1
    return buffer.count // rows if rows else 0


def are_plain(first: Array, second: Array) -> bool:
    """Whether two NumPy arrays have one dtype and cannot share memory: the usual case, told fast.

    An array without a base owns its memory, so two such are apart. False: look closely.
    """
    return (
        type(first) is _ndarray
        and type(second) is _ndarray
        and first.base is None
        and second.base is None
        and first is not second
        and first.dtype is second.dtype
    )


# --- what is done to the input first ------------------------------------------------------------


def separate(array: Array, source: Buffer, targets: Sequence[Buffer], own: int) -> Array:
    """Copy the input when an output other than exactly its own block would overwrite it."""
    for index, target in enumerate(targets):
        if overlaps(source, target) and not (index == own and source.address == target.address):
            return copy_of(array)
    return array


def copied_where_overlapping(
    arrays: Sequence[Array], sources: Sequence[Buffer], targets: Sequence[Buffer]
) -> tuple[Array, ...]:
    return tuple(
        copy_of(array) if any(overlaps(source, target) for target in targets) else array
        for array, source in zip(arrays, sources, strict=True)
    )


def reducible(what: str, array: Array, op: ReduceOp) -> tuple[Array, ReduceOp]:
    """Check the op for the array's dtype. PREMUL_SUM: (a scaled copy, SUM); else: as they are.

    On a GPU PREMUL_SUM stays: NCCL has it.
    """
    if op is _SUM:
        return array, op  # defined for every dtype
    dtype = FROM_NUMPY.get(array.dtype) if type(array) is _ndarray else None
    try:
        check_reduce(op, Dtype(input_of(array).dtype) if dtype is None else dtype)
    except UsageError as error:
        raise error.named(what) from error.__cause__
    if op.code != _PREMUL_SUM or is_on_device(array):
        return array, op
    copy = copy_of(array)
    copy *= op.factor
    return copy, _SUM


def _dtype_name(buffer: Buffer) -> str:
    return Dtype(buffer.dtype).label


def show(buffer: Buffer) -> str:
    return f"{_dtype_name(buffer)}{list(buffer.shape)}"
