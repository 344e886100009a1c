"""The steps in which a whole group takes part: each starts an op and returns what the call gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from differential.context import Context


def all_reduce(c: Context) -> Any:
    x = c.in_place(c.step["shape"])
    return c.dist.all_reduce(x, op=c.reduce_op(), group=c.group, async_op=c.step["async"])


def broadcast(c: Context) -> Any:
    x = c.in_place(c.step["shape"])
    if c.step["form"] == "positional":
        return c.dist.broadcast(x, c.members[c.root], c.group, c.step["async"])
    return c.dist.broadcast(x, group=c.group, async_op=c.step["async"], **c.rooted("src"))


def reduce(c: Context) -> Any:
    x = c.in_place(c.step["shape"], is_result=c.is_root)
    op, is_async = c.reduce_op(), c.step["async"]
    if c.step["form"] == "positional":
        return c.dist.reduce(x, c.members[c.root], op, c.group, is_async)
    return c.dist.reduce(x, op=op, group=c.group, async_op=is_async, **c.rooted("dst"))


def all_gather(c: Context) -> Any:
    x = c.input(c.step["shape"])
    blocks = [c.output(c.step["shape"]) for _ in c.members]
    return c.dist.all_gather(blocks, x, group=c.group, async_op=c.step["async"])


def all_gather_into_tensor(c: Context) -> Any:
    x = c.input(c.step["shape"])
    y = c.output(_times(c.step["shape"], c.size))
    call = getattr(c.dist, c.step["do"])
    return call(y, x, group=c.group, async_op=c.step["async"])


def gather(c: Context) -> Any:
    x = c.input(c.step["shape"])
    blocks = [c.output(c.step["shape"]) for _ in c.members] if c.is_root else None
    if c.step["form"] == "positional":
        return c.dist.gather(x, blocks, c.members[c.root], c.group, c.step["async"])
    return c.dist.gather(x, blocks, group=c.group, async_op=c.step["async"], **c.rooted("dst"))


def scatter(c: Context) -> Any:
    y = c.output(c.step["shape"])
    blocks = [c.input(c.step["shape"], to) for to in range(c.size)] if c.is_root else None
    if c.step["form"] == "positional":
        return c.dist.scatter(y, blocks, c.members[c.root], c.group, c.step["async"])
    return c.dist.scatter(y, blocks, group=c.group, async_op=c.step["async"], **c.rooted("src"))


def reduce_scatter(c: Context) -> Any:
    y = c.output(c.step["shape"])
    blocks = [c.input(c.step["shape"], to) for to in range(c.size)]
    return c.dist.reduce_scatter(
        y, blocks, op=c.reduce_op(), group=c.group, async_op=c.step["async"]
    )


def reduce_scatter_tensor(c: Context) -> Any:
    y = c.output(c.step["shape"])
    x = c.input(_times(c.step["shape"], c.size))
    call = getattr(c.dist, c.step["do"])
    return call(y, x, op=c.reduce_op(), group=c.group, async_op=c.step["async"])


def all_to_all(c: Context) -> Any:
    inputs = [c.input(c.step["shape"], to) for to in range(c.size)]
    outputs = [c.output(c.step["shape"]) for _ in c.members]
    return c.dist.all_to_all(outputs, inputs, group=c.group, async_op=c.step["async"])


def all_to_all_single(c: Context) -> Any:
    shape = _times(c.step["shape"], c.size)
    y, x = c.output(shape), c.input(shape)
    return c.dist.all_to_all_single(y, x, group=c.group, async_op=c.step["async"])


def all_to_all_uneven(c: Context) -> Any:
    me, splits, row = c.group_rank, c.step["splits"], c.step["row"]
    sent = splits[me][: c.size]
    received = [splits[sender][me] for sender in range(c.size)]
    y, x = c.output([sum(received), *row]), c.input([sum(sent), *row])
    return c.dist.all_to_all_single(y, x, received, sent, group=c.group, async_op=c.step["async"])


def barrier(c: Context) -> Any:
    return c.dist.barrier(group=c.group, async_op=c.step["async"])


def all_reduce_coalesced(c: Context) -> Any:
    arrays = [c.in_place(shape, place) for place, shape in enumerate(c.step["shapes"])]
    return c.dist.all_reduce_coalesced(
        arrays, op=c.reduce_op(), group=c.group, async_op=c.step["async"]
    )


def all_gather_coalesced(c: Context) -> Any:
    inputs = [c.input(shape, place) for place, shape in enumerate(c.step["shapes"])]
    outputs = [[c.output(shape) for shape in c.step["shapes"]] for _ in c.members]
    return c.dist.all_gather_coalesced(outputs, inputs, group=c.group, async_op=c.step["async"])


def coalescing_manager(c: Context) -> Any:
    """Several ops of one kind inside `_coalescing_manager`, which is also what waits for them."""
    calls: list[tuple[Any, tuple[Any, ...]]] = []
    for place, shape in enumerate(c.step["shapes"]):
        total = _times(shape, c.size)
        match c.step["of"]:
            case "all_reduce":
                calls.append((c.dist.all_reduce, (c.in_place(shape, place), c.reduce_op())))
            case "all_gather_into_tensor":
                pair = (c.output(total), c.input(shape, place))
                calls.append((c.dist.all_gather_into_tensor, pair))
            case _:
                three = (c.output(shape), c.input(total, place), c.reduce_op())
                calls.append((c.dist.reduce_scatter_tensor, three))
    coalescing = _find_coalescing_manager(c.dist)
    with coalescing(group=c.group, async_ops=c.step["async"]) as manager:
        for call, arguments in calls:
            call(*arguments, group=c.group)
    return manager if c.step["async"] else None


def _find_coalescing_manager(dist: Any) -> Any:
    # torch keeps it beside the public names, although its documentation uses it.
    return getattr(dist, "_coalescing_manager", None) or (dist.distributed_c10d._coalescing_manager)


def _times(shape: list[int], n: int) -> list[int]:
    return [shape[0] * n, *shape[1:]]


COLLECTIVES: dict[str, Callable[[Context], Any]] = {
    "all_reduce": all_reduce,
    "broadcast": broadcast,
    "reduce": reduce,
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "all_gather_single": all_gather_into_tensor,
    "gather": gather,
    "scatter": scatter,
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_tensor": reduce_scatter_tensor,
    "reduce_scatter_single": reduce_scatter_tensor,
    "all_to_all": all_to_all,
    "all_to_all_single": all_to_all_single,
    "all_to_all_uneven": all_to_all_uneven,
    "barrier": barrier,
    "all_reduce_coalesced": all_reduce_coalesced,
    "all_gather_coalesced": all_gather_coalesced,
    "coalescing_manager": coalescing_manager,
}
