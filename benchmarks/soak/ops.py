"""One step with collectives: each function starts its op and gives what to wait for and to check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import distdbg as dist
from benchmarks.soak.draw import FLOATS, INTEGERS, Array, Step, check_equal
from tests.support.reference import fold

#: What was started, and the check of its results.
Started = tuple[Any, Callable[[], None]]

_ANY_OPS: Final = (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
_INTEGER_OPS: Final = (
    *_ANY_OPS,
    dist.ReduceOp.PRODUCT,
    dist.ReduceOp.BAND,
    dist.ReduceOp.BOR,
    dist.ReduceOp.BXOR,
)
_WIDE_OPS: Final = (*_ANY_OPS, dist.ReduceOp.PRODUCT, dist.ReduceOp.AVG)


def _reduce_op(step: Step) -> Any:
    if step.dtype in INTEGERS:
        return step.draw.choice(_INTEGER_OPS)
    if step.dtype in ("float32", "float64"):
        return step.draw.choice(_WIDE_OPS)
    return step.draw.choice(_ANY_OPS) if step.dtype in FLOATS else dist.ReduceOp.SUM


def all_reduce(step: Step) -> Started:
    op, count = _reduce_op(step), step.count()
    array = step.mine(count)
    if count % 2 == 0 and step.draw.chance(3):
        array = array.reshape(2, -1)
    work = dist.all_reduce(array, op, group=step.group, async_op=step.is_async)
    return work, lambda: check_equal(
        step, "all_reduce", array.reshape(-1), fold(dist.ReduceOp(op), step.everyone(count))
    )


def broadcast(step: Step) -> Started:
    count = step.count()
    root, named = step.root("src")
    array = step.mine(count)
    work = dist.broadcast(array, group=step.group, async_op=step.is_async, **named)
    return work, lambda: check_equal(step, "broadcast", array, step.brought(root, count))


def reduce(step: Step) -> Started:
    op, count = _reduce_op(step), step.count()
    root, named = step.root("dst")
    array = step.mine(count)
    work = dist.reduce(array, op=op, group=step.group, async_op=step.is_async, **named)

    def check() -> None:
        if step.rank == root:
            check_equal(step, "reduce", array, fold(dist.ReduceOp(op), step.everyone(count)))

    return work, check


def _counts(step: Step) -> list[int]:
    """One length per rank; in a list they may differ."""
    if step.draw.chance(2):
        return [step.count()] * step.size
    return [step.draw.below(40) for _ in range(step.size)]


def all_gather(step: Step) -> Started:
    counts = _counts(step)
    outputs = [step.room(count) for count in counts]
    array = step.mine(counts[step.rank])
    work = dist.all_gather(outputs, array, group=step.group, async_op=step.is_async)
    return work, lambda: _check_blocks(step, "all_gather", outputs, counts)


def _check_blocks(step: Step, what: str, outputs: list[Array], counts: list[int]) -> None:
    for rank, (output, count) in enumerate(zip(outputs, counts, strict=True)):
        check_equal(step, what, output, step.brought(rank, count))


_GATHERS: Final = (dist.all_gather_into_tensor, dist.all_gather_single, dist._all_gather_base)


def all_gather_single(step: Step) -> Started:
    count = step.count() // 4
    output, function = step.room(count * step.size), step.draw.choice(_GATHERS)
    work = function(output, step.mine(count), group=step.group, async_op=step.is_async)
    return work, lambda: check_equal(
        step, function.__name__, output, np.concatenate(step.everyone(count))
    )


def gather(step: Step) -> Started:
    count = step.count() // 2
    root, named = step.root("dst")
    outputs = [step.room(count) for _ in step.ranks] if step.rank == root else None
    array = step.mine(count)
    work = dist.gather(array, outputs, group=step.group, async_op=step.is_async, **named)
    counts = [count] * step.size
    return work, lambda: _check_blocks(step, "gather", outputs, counts) if outputs else None


def scatter(step: Step) -> Started:
    count = step.count() // 2
    root, named = step.root("src")
    inputs = None
    if step.rank == root:
        inputs = [step.mine(count, block) for block in range(step.size)]
    output = step.room(count)
    work = dist.scatter(output, inputs, group=step.group, async_op=step.is_async, **named)
    return work, lambda: check_equal(step, "scatter", output, step.brought(root, count, step.rank))


def reduce_scatter(step: Step) -> Started:
    op, counts = _reduce_op(step), _counts(step)
    output = step.room(counts[step.rank])
    inputs = [step.mine(count, block) for block, count in enumerate(counts)]
    work = dist.reduce_scatter(output, inputs, op, group=step.group, async_op=step.is_async)
    return work, lambda: _check_part(step, "reduce_scatter", op, output)


def _check_part(step: Step, what: str, op: Any, output: Array) -> None:
    parts = [step.brought(rank, len(output), step.rank) for rank in range(step.size)]
    check_equal(step, what, output, fold(dist.ReduceOp(op), parts))


_SCATTERS: Final = (
    dist.reduce_scatter_tensor,
    dist.reduce_scatter_single,
    dist._reduce_scatter_base,
)


def reduce_scatter_single(step: Step) -> Started:
    op, count = _reduce_op(step), step.count() // 4
    output, function = step.room(count), step.draw.choice(_SCATTERS)
    array = np.concatenate([step.mine(count, block) for block in range(step.size)])
    work = function(output, array, op, group=step.group, async_op=step.is_async)
    return work, lambda: _check_part(step, function.__name__, op, output)


def _splits(step: Step) -> list[list[int]]:
    """[from][to], in group ranks."""
    if step.draw.chance(3):
        return [[step.draw.choice((0, 1, 5, 300))] * step.size] * step.size
    return [[step.draw.below(9) for _ in step.ranks] for _ in step.ranks]


def all_to_all(step: Step) -> Started:
    splits = _splits(step)
    inputs = [step.mine(count, to) for to, count in enumerate(splits[step.rank])]
    outputs = [step.room(row[step.rank]) for row in splits]
    work = dist.all_to_all(outputs, inputs, group=step.group, async_op=step.is_async)

    def check() -> None:
        for source, output in enumerate(outputs):
            expected = step.brought(source, len(output), step.rank)
            check_equal(step, "all_to_all", output, expected)

    return work, check


def all_to_all_single(step: Step) -> Started:
    splits = _splits(step)
    sent, taken = splits[step.rank], [row[step.rank] for row in splits]
    array = np.concatenate([step.mine(count, to) for to, count in enumerate(sent)])
    output = step.room(sum(taken))
    named: dict[str, Any] = {}
    if any(row != splits[0] for row in splits) or len(set(splits[0])) > 1 or step.draw.chance(2):
        named = {"output_split_sizes": taken, "input_split_sizes": sent}
    work = dist.all_to_all_single(output, array, group=step.group, async_op=step.is_async, **named)
    expected = [step.brought(source, count, step.rank) for source, count in enumerate(taken)]
    return work, lambda: check_equal(step, "all_to_all_single", output, np.concatenate(expected))


def barrier(step: Step) -> Started:
    return dist.barrier(group=step.group, async_op=step.is_async), lambda: None


def all_reduce_coalesced(step: Step) -> Started:
    op = _reduce_op(step)
    counts = [step.draw.below(70) for _ in range(1 + step.draw.below(3))]
    arrays = [step.mine(count) for count in counts]
    work = dist.all_reduce_coalesced(arrays, op, group=step.group, async_op=step.is_async)

    def check() -> None:
        for array, count in zip(arrays, counts, strict=True):
            expected = fold(dist.ReduceOp(op), step.everyone(count))
            check_equal(step, "all_reduce_coalesced", array, expected)

    return work, check


def all_gather_coalesced(step: Step) -> Started:
    counts = [step.draw.below(70) for _ in range(1 + step.draw.below(3))]
    outputs = [[step.room(count) for count in counts] for _ in step.ranks]
    arrays = [step.mine(count) for count in counts]
    work = dist.all_gather_coalesced(outputs, arrays, group=step.group, async_op=step.is_async)

    def check() -> None:
        for place, count in enumerate(counts):
            blocks = [row[place] for row in outputs]
            _check_blocks(step, "all_gather_coalesced", blocks, [count] * step.size)

    return work, check


_COALESCED: Final = (all_reduce, all_gather_single, reduce_scatter_single)


def coalescing_manager(step: Step) -> Started:
    """Ops of one kind, and of one reduce op: so SUM, by a type that has no other here."""
    step.dtype = "complex64"
    start, count = step.draw.choice(_COALESCED), 1 + step.draw.below(3)
    is_async, step.is_async = step.is_async, False
    with dist._coalescing_manager(group=step.group, async_ops=is_async) as block:
        checks = [start(step)[1] for _ in range(count)]

    def check() -> None:
        for each in checks:
            each()

    return block if is_async else None, check


#: Common ones more often.
COLLECTIVES: Final[tuple[Callable[[Step], Started], ...]] = (
    *(all_reduce,) * 4,
    *(broadcast,) * 2,
    *(reduce,) * 2,
    *(all_gather,) * 2,
    *(all_gather_single,) * 2,
    gather,
    scatter,
    *(reduce_scatter,) * 2,
    *(reduce_scatter_single,) * 2,
    *(all_to_all,) * 2,
    *(all_to_all_single,) * 2,
    *(barrier,) * 2,
    all_reduce_coalesced,
    all_gather_coalesced,
    coalescing_manager,
)
