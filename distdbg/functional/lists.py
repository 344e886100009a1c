"""Functional collectives with a list of arrays on one side or both; results are tuples of new arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.errors import UsageError
from distdbg.functional.arguments import (
    GroupLike,
    OpLike,
    array_of,
    arrays_of,
    check_alike,
    dim_of,
    group_of,
    reduce_op_of,
)
from distdbg.functional.collectives import weigh
from distdbg.functional.op import OpRequest, carry_out
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import Array, check_one_dtype
from distdbg.runtime.api.options import Timeout
from distdbg.runtime.arrays.buffers import empty_like, zeros_like
from distdbg.runtime.groups.group_argument import to_group_rank


def all_gather_list(
    tensor: Array, group: GroupLike = None, *, async_op: bool = False, timeout: Timeout = None
) -> Any:
    """Return the arrays of all ranks, by group rank; they have one shape."""
    what = "all_gather_list"
    pg, array = group_of(what, group), array_of(what, tensor)
    outs = tuple(empty_like(array, array.shape) for _ in range(pg.size()))
    all_calls = [calls.all_gather(pg.size(), pg.rank(), outs, array, name=what)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(
        request,
        all_calls,
        [array],
        lambda: outs,
        lambda *grads: (reduce_scatter_list(grads, group=pg),),
    )


def reduce_scatter_list(
    tensors: Sequence[Array],
    op: OpLike = ReduceOp.SUM,
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Reduce the lists of all ranks block by block and return the block of this rank's number.

    Blocks may differ in shape; all ranks have the same shapes.
    """
    what = "reduce_scatter_list"
    pg, reduce_op = group_of(what, group), reduce_op_of(what, op)
    size, rank = pg.size(), pg.rank()
    arrays = arrays_of(what, tensors, size)
    shapes = {tuple(array.shape) for array in arrays}
    out = empty_like(arrays[rank], arrays[rank].shape)

    def gradient(grad: Array) -> Sequence[Array]:
        if len(shapes) > 1:
            raise UsageError(f"{what}: no gradient is defined for blocks of different shapes")
        grads = all_gather_list(grad, pg)
        return tuple(weigh(what, reduce_op, each, size) for each in grads)

    all_calls = [calls.reduce_scatter(size, rank, out, arrays, reduce_op, name=what)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, all_calls, arrays, lambda: out, gradient)


def all_to_all_list(
    tensors: Sequence[Array],
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Give array r to rank r; array r of the result comes from rank r. All have one shape."""
    what = "all_to_all_list"
    pg = group_of(what, group)
    arrays = arrays_of(what, tensors, pg.size())
    check_alike(what, arrays)
    outs = tuple(empty_like(array, array.shape) for array in arrays)
    all_calls = [calls.all_to_all(pg.size(), pg.rank(), outs, arrays, name=what)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(
        request, all_calls, arrays, lambda: outs, lambda *grads: all_to_all_list(grads, pg)
    )


def gather(
    tensor: Array,
    dst: int | None = None,
    group: GroupLike = None,
    *,
    group_dst: int | None = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Return the arrays of all ranks on rank `dst`, and as many arrays of zeros on the others."""
    what = "gather"
    pg, array = group_of(what, group), array_of(what, tensor)
    root = to_group_rank(pg, what, "dst", dst, group_dst, default=0)
    size, rank = pg.size(), pg.rank()
    outs = [empty_like(array, array.shape) for _ in range(size)] if rank == root else None
    all_calls = [calls.gather(size, rank, array, outs, root)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(
        request,
        all_calls,
        [array],
        lambda: tuple(outs) if outs is not None else tuple(zeros_like(array) for _ in range(size)),
        lambda *grads: (scatter(grads, group=pg, group_src=root),),
    )


def scatter(
    tensors: Sequence[Array] | Array,
    src: int | None = None,
    group: GroupLike = None,
    *,
    group_src: int | None = None,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Return this rank's array of the list of rank `src`.

    The others give a list as well, or one array: it tells the shape and dtype only.
    """
    what = "scatter"
    pg = group_of(what, group)
    root = to_group_rank(pg, what, "src", src, group_src, default=0)
    size, rank = pg.size(), pg.rank()
    is_list = isinstance(tensors, (list, tuple))
    if tensors is None or (rank != root and is_list and not tensors):
        raise UsageError(
            f"{what}: on ranks other than {pg.ranks[root]} give an array of the shape of this rank's part"
        )
    if is_list:
        arrays = arrays_of(what, tensors, size)
    elif rank != root:
        arrays = [array_of(what, tensors, "tensors")]
    else:
        arrays = arrays_of(what, tensors)  # raises
    check_alike(what, arrays)
    out = empty_like(arrays[0], arrays[0].shape)

    def gradient(grad: Array) -> Sequence[Array]:
        return tuple(gather(grad, group=pg, group_dst=root)[: len(arrays)])

    all_calls = [calls.scatter(size, rank, out, arrays if rank == root else None, root)]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, all_calls, arrays, lambda: out, gradient)


# --- several arrays in one block ------------------------------------------------------------------


def all_reduce_coalesced(
    tensors: Sequence[Array],
    op: OpLike = ReduceOp.SUM,
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Reduce each of several arrays over all ranks, handed in as one block."""
    what = "all_reduce_coalesced"
    pg, arrays, reduce_op = group_of(what, group), arrays_of(what, tensors), reduce_op_of(what, op)
    check_one_dtype(what, arrays)
    outs = tuple(empty_like(array, array.shape) for array in arrays)

    def gradient(*grads: Array) -> Sequence[Array]:
        summed = all_reduce_coalesced(grads, group=pg)
        return tuple(weigh(what, reduce_op, each, pg.size()) for each in summed)

    all_calls = [
        calls.all_reduce(array, reduce_op, output=out, name=what)
        for array, out in zip(arrays, outs, strict=True)
    ]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, all_calls, arrays, lambda: outs, gradient)


def all_gather_into_tensor_coalesced(
    tensors: Sequence[Array],
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Join each of several arrays over all ranks, along its first dimension, in one block."""
    what = "all_gather_into_tensor_coalesced"
    pg, arrays = group_of(what, group), arrays_of(what, tensors)
    size, rank = pg.size(), pg.rank()
    outs = tuple(
        empty_like(a, (size * a.shape[0], *a.shape[1:]) if a.shape else (size,)) for a in arrays
    )

    def gradient(*grads: Array) -> Sequence[Array]:
        dims = [0] * len(grads)
        made: Sequence[Array] = reduce_scatter_tensor_coalesced(grads, scatter_dim=dims, group=pg)
        return made

    all_calls = [
        calls.all_gather_single(size, rank, out, array, None, what)
        for array, out in zip(arrays, outs, strict=True)
    ]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, all_calls, arrays, lambda: outs, gradient)


def reduce_scatter_tensor_coalesced(
    tensors: Sequence[Array],
    op: OpLike = ReduceOp.SUM,
    scatter_dim: Sequence[int] | None = None,
    group: GroupLike = None,
    *,
    async_op: bool = False,
    timeout: Timeout = None,
) -> Any:
    """Reduce each of several arrays and return this rank's part of each, in one block."""
    what = "reduce_scatter_tensor_coalesced"
    pg, arrays, reduce_op = group_of(what, group), arrays_of(what, tensors), reduce_op_of(what, op)
    size = pg.size()
    given = [0] * len(arrays) if scatter_dim is None else list(scatter_dim)
    if len(given) != len(arrays):
        raise UsageError(f"{what}: scatter_dim has {len(given)} entries for {len(arrays)} arrays")
    dims = [dim_of(what, "scatter_dim", d, a) for d, a in zip(given, arrays, strict=True)]
    if any(dims):
        raise UsageError(
            f"{what}: arrays are cut along their first dimension, got scatter_dim {given}",
            hint="reduce_scatter takes any dimension, one array at a time",
        )
    for at, array in enumerate(arrays):
        first = (tuple(array.shape) or (1,))[0]
        if first % size:
            raise UsageError(
                f"{what}: the first dimension of tensors[{at}], {first}, cannot be cut into "
                f"{size} equal parts"
            )
    outs = tuple(
        empty_like(a, (a.shape[0] // size, *a.shape[1:]) if a.shape else (1,)) for a in arrays
    )

    def gradient(*grads: Array) -> Sequence[Array]:
        joined = all_gather_into_tensor_coalesced(grads, pg)
        return tuple(weigh(what, reduce_op, each, size) for each in joined)

    all_calls = [
        calls.reduce_scatter_single(size, out, array, reduce_op, None, what)
        for array, out in zip(arrays, outs, strict=True)
    ]
    request = OpRequest(what, pg, async_op, timeout)
    return carry_out(request, all_calls, arrays, lambda: outs, gradient)
