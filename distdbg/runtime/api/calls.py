"""Makes a Call of arguments, and checks all that one rank can check alone, before anything is sent.

Pure functions of the group's size, this rank and the arrays; `collectives.py` and
`groups/group_methods.py` both build their Calls here, so both give the same errors. The checks
themselves are in `arguments.py`.

An input that overlaps an output is copied first, except where the op is defined in place: the
input being exactly this rank's block of the output of all_gather and gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import count

from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.call import MAX_WORDS, WORDS_SHIFT, Call, Kind, Variant
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api.arguments import (
    Array,
    are_plain,
    check_apart,
    check_blocks,
    check_dtypes,
    check_list,
    check_own_block,
    check_rank,
    check_splits,
    check_table,
    check_tag,
    copied_where_overlapping,
    reducible,
    row_count,
    separate,
    show,
)
from distdbg.runtime.arrays.buffers import copy_of, input_of, output_of, overlaps

_SUM = ReduceOp.SUM
_PREMUL_SUM = ReduceOp.PREMUL_SUM.code
_factor_numbers = count(1)


def all_reduce(
    array: Array,
    op: ReduceOp,
    timeout_s: float | None = None,
    output: Array | None = None,
    name: str | None = None,
) -> Call:
    """Reduce in place, or into `output`. PREMUL_SUM scales a copy of this rank's part and sums."""
    if op is _SUM and output is None:  # most are; defined for every dtype
        both = (array,)
        return Call(Kind.ALL_REDUCE, both, both, op, -1, -1, 0, None, None, timeout_s, name)
    source, sum_op = reducible(name or "all_reduce", array, op)
    outputs = (array if output is None else output,)
    inputs = outputs if source is outputs[0] else (source,)
    call = Call(Kind.ALL_REDUCE, inputs, outputs, sum_op, -1, -1, 0, None, None, timeout_s, name)
    return _marked(call, op)


def broadcast(size: int, array: Array, root: int, timeout_s: float | None = None) -> Call:
    """Send the root's array to all, in place."""
    root = check_rank("broadcast", "src", root, size)
    both = (array,)
    return Call(Kind.BROADCAST, both, both, None, root, -1, 0, None, None, timeout_s)


def reduce(
    size: int,
    rank: int,
    array: Array,
    root: int,
    op: ReduceOp,
    timeout_s: float | None = None,
    output: Array | None = None,
) -> Call:
    """Reduce into the root's array, or into its `output`."""
    root = check_rank("reduce", "dst", root, size)
    source, sum_op = reducible("reduce", array, op)
    outputs = (array if output is None else output,) if rank == root else ()
    call = Call(Kind.REDUCE, (source,), outputs, sum_op, root, -1, 0, None, None, timeout_s)
    return _marked(call, op)


def all_gather(
    size: int,
    rank: int,
    outputs: Sequence[Array],
    array: Array,
    timeout_s: float | None = None,
    name: str | None = None,
) -> Call:
    """Collect one block from each rank, one output array per rank; blocks may differ in size."""
    what = name or "all_gather"
    check_list(what, "tensor_list", outputs, size)
    source = input_of(array)
    targets = [output_of(block) for block in outputs]
    check_own_block(what, "tensor_list", targets, rank, "tensor", source)
    check_apart(what, "tensor_list", targets)
    array = separate(array, source, targets, own=rank)
    return Call(
        Kind.ALL_GATHER, (array,), tuple(outputs), None, -1, -1, 0, None, None, timeout_s, name
    )


def all_gather_single(
    size: int, rank: int, output: Array, array: Array, timeout_s: float | None, name: str
) -> Call:
    """Collect one block from each rank, one after the other in one array."""
    if are_plain(array, output) and output.size == size * array.size:
        return Call(
            Kind.ALL_GATHER, (array,), (output,), None, -1, -1, 0, None, None, timeout_s, name
        )
    source, target = input_of(array, "input"), output_of(output, "output")
    check_dtypes(name, source, target)
    if target.count != size * source.count:
        raise UsageError(
            f"{name}: output_tensor has {target.count} elements, expected {size * source.count} "
            f"({size} ranks times {source.count})",
            details=[f"input_tensor {show(source)}, output_tensor {show(target)}"],
        )
    at = target.address + rank * source.nbytes
    if overlaps(source, target) and source.address != at:
        array = copy_of(array)
    return Call(Kind.ALL_GATHER, (array,), (output,), None, -1, -1, 0, None, None, timeout_s, name)


def all_gather_coalesced(
    size: int,
    rank: int,
    table: Sequence[Sequence[Array]],
    arrays: Sequence[Array],
    timeout_s: float | None,
    name: str,
) -> list[Call]:
    """Gather several arrays: table[r][i] becomes input i of rank r."""
    if not isinstance(arrays, (list, tuple)):
        raise WrongTypeError(
            f"{name}: input_tensor_list must be a list of arrays, not {type(arrays).__name__}"
        )
    check_table(name, table, size, len(arrays))
    return [
        all_gather(size, rank, [row[i] for row in table], array, timeout_s, name)
        for i, array in enumerate(arrays)
    ]


def _is_given(blocks: object) -> bool:
    """Whether there is a list of blocks; an empty one is none. An array is no list, and has no truth."""
    return blocks is not None and not (isinstance(blocks, (list, tuple)) and not blocks)


def gather(
    size: int,
    rank: int,
    array: Array,
    outputs: Sequence[Array] | None,
    root: int,
    timeout_s: float | None = None,
) -> Call:
    """Collect one block from each rank on the root."""
    root = check_rank("gather", "dst", root, size)
    if rank != root:
        if _is_given(outputs):
            raise UsageError(
                f"gather: gather_list was given on rank {rank}, but the root is {root}",
                hint="pass gather_list on the destination rank only",
            )
        return Call(Kind.GATHER, (array,), (), None, root, -1, 0, None, None, timeout_s)
    if outputs is None:
        raise UsageError("gather: gather_list is missing on the destination rank")
    check_list("gather", "gather_list", outputs, size)
    source = input_of(array)
    targets = [output_of(block) for block in outputs]
    check_blocks("gather", "gather_list", targets, "tensor", source)
    array = separate(array, source, targets, own=rank)
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
    root = check_rank("scatter", "src", root, size)
    if rank != root:
        if _is_given(inputs):
            raise UsageError(
                f"scatter: scatter_list was given on rank {rank}, but the root is {root}",
                hint="pass scatter_list on the source rank only",
            )
        return Call(Kind.SCATTER, (), (array,), None, root, -1, 0, None, None, timeout_s)
    if inputs is None:
        raise UsageError("scatter: scatter_list is missing on the source rank")
    check_list("scatter", "scatter_list", inputs, size)
    target = output_of(array)
    sources = [input_of(block) for block in inputs]
    check_blocks("scatter", "scatter_list", sources, "tensor", target)
    blocks = copied_where_overlapping(inputs, sources, [target])
    return Call(Kind.SCATTER, blocks, (array,), None, root, -1, 0, None, None, timeout_s)


def reduce_scatter(
    size: int,
    rank: int,
    output: Array,
    inputs: Sequence[Array],
    op: ReduceOp,
    timeout_s: float | None = None,
    name: str | None = None,
) -> Call:
    """Reduce the lists block by block; rank r gets block r. Blocks may differ in size."""
    what = name or "reduce_scatter"
    check_list(what, "input_list", inputs, size)
    target = output_of(output)
    sources = [input_of(block) for block in inputs]
    check_own_block(what, "input_list", sources, rank, "output", target)
    blocks = copied_where_overlapping(inputs, sources, [target])
    parts = [reducible(what, block, op) for block in blocks]
    blocks, sum_op = tuple(block for block, _ in parts), parts[0][1]
    call = Call(
        Kind.REDUCE_SCATTER, blocks, (output,), sum_op, -1, -1, 0, None, None, timeout_s, name
    )
    return _marked(call, op)


def reduce_scatter_single(
    size: int, output: Array, array: Array, op: ReduceOp, timeout_s: float | None, name: str
) -> Call:
    """Reduce one array; each rank gets the part of its number."""
    array, sum_op = reducible(name, array, op)
    if are_plain(array, output) and array.size == size * output.size:
        call = Call(
            Kind.REDUCE_SCATTER, (array,), (output,), sum_op, -1, -1, 0, None, None, timeout_s, name
        )
        return _marked(call, op)
    source, target = input_of(array, "input"), output_of(output, "output")
    check_dtypes(name, source, target)
    if source.count != size * target.count:
        raise UsageError(
            f"{name}: input has {source.count} elements, expected {size * target.count} "
            f"({size} ranks times {target.count})",
            details=[f"input {show(source)}, output {show(target)}"],
        )
    if overlaps(source, target):
        array = copy_of(array)
    call = Call(
        Kind.REDUCE_SCATTER, (array,), (output,), sum_op, -1, -1, 0, None, None, timeout_s, name
    )
    return _marked(call, op)


def all_to_all(
    size: int,
    rank: int,
    outputs: Sequence[Array],
    inputs: Sequence[Array],
    timeout_s: float | None = None,
    name: str | None = None,
) -> Call:
    """Give block r of the inputs to rank r; blocks may differ in size."""
    what = name or "all_to_all"
    check_list(what, "output_tensor_list", outputs, size)
    check_list(what, "input_tensor_list", inputs, size)
    sources = [input_of(block) for block in inputs]
    targets = [output_of(block) for block in outputs]
    for buffer in (*sources, *targets):
        check_dtypes(what, sources[0], buffer)
    if sources[rank].count != targets[rank].count:
        raise UsageError(
            f"{what}: the block from rank {rank} to itself has {sources[rank].count} elements "
            f"in input_tensor_list and {targets[rank].count} in output_tensor_list"
        )
    check_apart(what, "output_tensor_list", targets)
    blocks = copied_where_overlapping(inputs, sources, targets)
    return Call(
        Kind.ALL_TO_ALL, blocks, tuple(outputs), None, -1, -1, 0, None, None, timeout_s, name
    )


def all_to_all_single(
    size: int,
    rank: int,
    output: Array,
    array: Array,
    output_splits: Sequence[int] | None,
    input_splits: Sequence[int] | None,
    timeout_s: float | None = None,
    name: str = "all_to_all_single",
) -> Call:
    """Cut along the first dimension, evenly or by the splits, and exchange the parts."""
    what = name
    if _is_even(input_splits) and _is_even(output_splits) and are_plain(array, output):
        shape = array.shape
        if shape and shape == output.shape and shape[0] % size == 0:
            return Call(
                Kind.ALL_TO_ALL, (array,), (output,), None, -1, -1, 0, None, None, timeout_s, what
            )
    source, target = input_of(array, "input"), output_of(output, "output")
    check_dtypes(what, source, target)
    input_cut = check_splits(what, "input", input_splits, source, size)
    output_cut = check_splits(what, "output", output_splits, target, size)
    source_row, target_row = row_count(source), row_count(target)
    if source_row != target_row and source.count and target.count:
        raise UsageError(
            f"{what}: a row of input has {source_row} elements, a row of output {target_row}",
            details=[f"input {show(source)}, output {show(target)}"],
        )
    if input_cut[rank] != output_cut[rank]:
        raise UsageError(
            f"{what}: rank {rank} sends {input_cut[rank]} rows to itself "
            f"but expects {output_cut[rank]}"
        )
    if overlaps(source, target):
        array = copy_of(array)
    is_even = _is_even(input_splits) and _is_even(output_splits)
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
    peer, tag = check_rank("send", "dst", peer, size), check_tag("send", tag)
    return Call(Kind.SEND, (array,), (), None, -1, peer, tag, None, None, timeout_s)


def recv(size: int, array: Array, peer: int, tag: int, timeout_s: float | None = None) -> Call:
    """Receive from one rank, or from any (-1)."""
    if peer != -1:
        peer = check_rank("recv", "src", peer, size)
    tag = check_tag("recv", tag)
    return Call(Kind.RECV, (), (array,), None, -1, peer, tag, None, None, timeout_s)


def barrier(timeout_s: float | None = None) -> Call:
    """Wait for all ranks."""
    return Call(Kind.BARRIER, (), (), None, -1, -1, 0, None, None, timeout_s)


def _marked(call: Call, op: ReduceOp) -> Call:
    """Say that `op` was PREMUL_SUM, where SUM is left of it, and with what factor."""
    if op.code != _PREMUL_SUM:
        return call
    if call.op is not op:
        call.add_extra(Variant.PREMUL_SUM)
    # As text: NaN is like NaN, and 0.0 is not -0.0.
    text = repr(op.factor)
    call.agreed = {"factor": text}
    number = _number_of(text)
    if number <= MAX_WORDS:
        call.add_extra(number << WORDS_SHIFT)
    elif call.extra >= 0:
        call.extra = ~call.extra  # a program that never repeats a factor
    return call


@lru_cache(maxsize=4096)
def _number_of(text: str) -> int:
    """A number that no other factor of this process has, or ever had."""
    del text
    return next(_factor_numbers)


def _is_even(splits: Sequence[int] | None) -> bool:
    """Whether none were given; not by their truth, for an array of several numbers has none."""
    return splits is None or (isinstance(splits, (list, tuple)) and not splits)
