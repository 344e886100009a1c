"""Functional collectives with one array in and one new array out.

`group` is a group, a mesh of one dimension, or a mesh and one of its dimensions; `op` a ReduceOp or its name.
With `async_op=True` they return a Result, whose `wait()` is the array. `timeout` limits this op alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.errors import UsageError
from distdbg.functional.arguments import GroupLike, OpLike, array_of, dim_of, group_of, reduce_op_of
from distdbg.functional.op import OpRequest, carry_out
from distdbg.ops.call import WORDS_SHIFT, Variant
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import Array
from distdbg.runtime.api.integers import to_ints
from distdbg.runtime.api.options import Timeout
from distdbg.runtime.arrays.buffers import copy_of, empty_like, join_along, stack_parts, zeros_like
from distdbg.runtime.groups.group_argument import to_group_rank


def all_reduce(
    tensor: Array,
    op: OpLike = ReduceOp.SUM,
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Reduce over all ranks; every rank gets the result.

    There is a gradient for SUM, AVG and PREMUL_SUM; a backward pass through another op is an error.
    """
    what = "all_reduce"
    pg, array, reduce_op = group_of(what, group), array_of(what, tensor), reduce_op_of(what, op)
    out = empty_like(array, array.shape)

    def gradient(grad: Array) -> tuple[Array]:
        return (weigh(what, reduce_op, all_reduce(grad, group=pg), pg.size()),)

    all_calls = [calls.all_reduce(array, reduce_op, output=out)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, all_calls, [array], lambda: out, gradient)


def reduce(
    tensor: Array,
    dst: int | None = None,
    op: OpLike = ReduceOp.SUM,
    group: GroupLike = None,
    *,
    group_dst: int | None = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Reduce over all ranks; rank `dst` gets the result, the others zeros."""
    what = "reduce"
    pg, array, reduce_op = group_of(what, group), array_of(what, tensor), reduce_op_of(what, op)
    root = to_group_rank(pg, what, "dst", dst, group_dst)
    is_root = pg.rank() == root
    out = empty_like(array, array.shape) if is_root else None

    def gradient(grad: Array) -> tuple[Array]:
        return (weigh(what, reduce_op, broadcast(grad, group=pg, group_src=root), pg.size()),)

    all_calls = [calls.reduce(pg.size(), pg.rank(), array, root, reduce_op, output=out)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(
        request, all_calls, [array], lambda: out if is_root else zeros_like(array), gradient
    )


def broadcast(
    tensor: Array,
    src: int | None = None,
    group: GroupLike = None,
    *,
    group_src: int | None = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Return the array of rank `src` on all ranks; those of the others tell its shape only."""
    what = "broadcast"
    pg, array = group_of(what, group), array_of(what, tensor)
    root = to_group_rank(pg, what, "src", src, group_src)
    out = copy_of(array) if pg.rank() == root else empty_like(array, array.shape)
    all_calls = [calls.broadcast(pg.size(), out, root)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(
        request,
        all_calls,
        [array],
        lambda: out,
        lambda grad: (reduce(grad, group=pg, group_dst=root),),
    )


def all_gather(
    tensor: Array,
    gather_dim: int = 0,
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Join the arrays of all ranks along a dimension; they have one shape."""
    what = "all_gather"
    array = array_of(what, tensor)
    dim, pg = dim_of(what, "gather_dim", gather_dim, array), group_of(what, group)
    size, shape = pg.size(), tuple(array.shape)
    # Blocks follow one another in memory only along the first dimension.
    out = empty_like(array, (size * shape[0] if shape else size, *shape[1:]))
    if dim:
        out = empty_like(array, (size, *shape))

    def gradient(grad: Array) -> tuple[Array]:
        return (reduce_scatter(grad, scatter_dim=dim, group=pg),)

    call = calls.all_gather_single(size, pg.rank(), out, array, None, what)
    if dim:
        call.agreed = {"gather_dim": dim}
        call.add_extra(dim << WORDS_SHIFT)
    all_calls = [call]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(
        request, all_calls, [array], lambda: join_along(out, dim) if dim else out, gradient
    )


def reduce_scatter(
    tensor: Array,
    op: OpLike = ReduceOp.SUM,
    scatter_dim: int = 0,
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Reduce over all ranks and cut the result along a dimension; rank r gets part r."""
    what = "reduce_scatter"
    pg, array, reduce_op = group_of(what, group), array_of(what, tensor), reduce_op_of(what, op)
    dim, size = dim_of(what, "scatter_dim", scatter_dim, array), pg.size()
    shape = tuple(array.shape) or (1,)
    if shape[dim] % size:
        raise UsageError(
            f"{what}: dimension {dim} of {shape[dim]} cannot be cut into {size} equal parts",
            hint="pad it; reduce_scatter_list takes parts of different lengths",
        )
    out = empty_like(array, (*shape[:dim], shape[dim] // size, *shape[dim + 1 :]))
    source = stack_parts(array, size, dim) if dim else array

    def gradient(grad: Array) -> tuple[Array]:
        return (weigh(what, reduce_op, all_gather(grad, dim, pg), size),)

    all_calls = [calls.reduce_scatter_single(size, out, source, reduce_op, None, what)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, all_calls, [array], lambda: out, gradient)


def all_to_all(
    tensor: Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Cut along the first dimension, give part r to rank r, and join what all ranks gave.

    Without split sizes the parts are equal; with one of the two the other is needed as well.
    """
    what = "all_to_all"
    pg, array = group_of(what, group), array_of(what, tensor)
    if (output_split_sizes is None) != (input_split_sizes is None):
        missing = "input" if input_split_sizes is None else "output"
        raise UsageError(
            f"{what}: {missing}_split_sizes is missing: give both or neither",
            hint="output_split_sizes[r] is how many rows rank r has for this rank",
        )
    rows = None if output_split_sizes is None else _splits(what, "output", output_split_sizes)
    parts = None if input_split_sizes is None else _splits(what, "input", input_split_sizes)
    return _exchange(what, array, rows, parts, pg, async_op, timeout)


def _exchange(
    what: str,
    array: Array,
    rows: list[int] | None,
    parts: list[int] | None,
    pg: Any,
    async_op: bool,
    timeout: Timeout,
) -> Any:
    shape = tuple(array.shape)
    if not shape:
        raise UsageError(f"{what}: an array of no dimensions cannot be cut into parts")
    out = empty_like(array, shape if rows is None else (sum(rows), *shape[1:]))

    def gradient(grad: Array) -> tuple[Array]:
        return (_exchange(what, grad, parts, rows, pg, False, None),)

    call = calls.all_to_all_single(pg.size(), pg.rank(), out, array, rows, parts, name=what)
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, [call], [array], lambda: out, gradient)


def permute(
    tensor: Array,
    dst: Sequence[int],
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Send the array to rank `dst[rank]` of the group and return the one that was sent here.

    `dst` is a permutation of the group's ranks, the same on all of them; the arrays have one shape.
    """
    what = "permute"
    pg, array = group_of(what, group), array_of(what, tensor)
    order, size, rank = to_ints(what, "dst", dst), pg.size(), pg.rank()
    if sorted(order) != list(range(size)):
        raise UsageError(
            f"{what}: dst must have each of the group ranks 0-{size - 1} once, got {order[:8]}"
        )
    count = 1
    for extent in array.shape:
        count *= extent
    flat = copy_of(array).reshape(-1)
    out = empty_like(array, array.shape)
    rows, parts = [0] * size, [0] * size
    rows[order.index(rank)], parts[order[rank]] = count, count
    back = [order.index(each) for each in range(size)]
    call = calls.all_to_all_single(size, rank, out.reshape(-1), flat, rows, parts, name=what)
    call.agreed = {"dst": order, "shape": list(array.shape) or [1]}
    call.add_extra(Variant.PERMUTE)
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, [call], [array], lambda: out, lambda grad: (permute(grad, back, pg),))


def _splits(what: str, side: str, splits: Sequence[int]) -> list[int]:
    return to_ints(what, f"{side}_split_sizes", splits)


def weigh(what: str, op: ReduceOp, grad: Array, size: int) -> Array:
    """What a sum of gradients is for an op that is a sum with weights."""
    if op == ReduceOp.SUM:
        return grad
    if op == ReduceOp.AVG:
        return grad / size
    if op.factor is not None:
        return grad * op.factor
    raise UsageError(
        f"{what}: no gradient is defined for reduce op {op.op.name}",
        hint="use SUM or AVG, or give it tensor.detach()",
    )
