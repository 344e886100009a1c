"""Every reduction in every dtype, and moves of every form, over MPI and over our own engine: bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import distdbg as dist
from distdbg import _native
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType, make_premul_sum
from distdbg.runtime.backends.mpi.starting import started

COUNT = 7

#: One of each size and kind.
MOVED = (Dtype.bool_, Dtype.float32, Dtype.bfloat16, Dtype.complex128)


def values(dtype: Dtype, rank: int, count: int, has_nan: bool) -> Any:
    rng = np.random.default_rng(rank)
    if dtype is Dtype.bool_:
        return rng.integers(0, 2, count).astype(bool)
    low = -3 if dtype.is_floating or dtype.is_complex or dtype.label.startswith("int") else 0
    made = rng.integers(low, 4, count).astype(dtype.to_numpy())
    if has_nan and dtype.is_floating:
        made[rank % count] = np.nan
    return made


def ops_of(dtype: Dtype) -> list[Any]:
    kinds = [kind for kind in RedOpType if kind is not RedOpType.PREMUL_SUM]
    ops: list[Any] = [kind for kind in kinds if _native.supports(kind, dtype)]
    return [*ops, make_premul_sum(2.0)] if dtype.is_floating else ops


def reductions(dtype: Dtype, op: Any, rank: int, size: int) -> list[Callable[[Any], Any]]:
    has_nan = op in (RedOpType.MIN, RedOpType.MAX)

    def all_reduce(group: Any) -> Any:
        x = values(dtype, rank, COUNT, has_nan)
        dist.all_reduce(x, op, group=group)
        return x

    def strided(group: Any) -> Any:
        x = values(dtype, rank, 2 * COUNT, has_nan)
        dist.all_reduce(x[::2], op, group=group)
        return x

    def reduce(group: Any) -> Any:
        x = values(dtype, rank, COUNT, has_nan)
        dist.reduce(x, size - 1, op, group=group)
        return x if rank == size - 1 else None

    def scattered(group: Any) -> Any:
        x = np.zeros(rank + 1, dtype.to_numpy())
        parts = [values(dtype, rank + part, part + 1, has_nan) for part in range(size)]
        dist.reduce_scatter(x, parts, op, group=group)
        return x

    def scattered_flat(group: Any) -> Any:
        x = np.zeros(3, dtype.to_numpy())
        dist.reduce_scatter_tensor(x, values(dtype, rank, 3 * size, has_nan), op, group=group)
        return x

    if op is RedOpType.AVG:  # what is done to the result is the same for all ops but this
        return [all_reduce, strided, reduce, scattered, scattered_flat]
    return [all_reduce]


def moves(dtype: Dtype, rank: int, size: int) -> list[Callable[[Any], Any]]:
    def empty(count: int) -> Any:
        return np.zeros(count, dtype.to_numpy())

    def mine(count: int) -> Any:
        return values(dtype, rank, count, False)

    def broadcast(group: Any) -> Any:
        x = mine(COUNT)
        dist.broadcast(x, 1, group=group)
        return x

    def uneven_gather(group: Any) -> Any:
        blocks = [empty(each) for each in range(size)]
        dist.all_gather(blocks, mine(rank), group=group)
        return np.concatenate(blocks)

    def own_block(group: Any) -> Any:
        whole = empty(size * 3)
        part = whole[rank * 3 : rank * 3 + 3]
        part[:] = mine(3)
        dist.all_gather_into_tensor(whole, part, group=group)
        return whole

    def gather(group: Any) -> Any:
        blocks = [empty(3) for _ in range(size)] if rank == 1 else None
        dist.gather(mine(3), blocks, 1, group=group)
        return None if blocks is None else np.concatenate(blocks)

    def scatter(group: Any) -> Any:
        x = empty(3)
        dist.scatter(x, [mine(3) for _ in range(size)] if rank == 1 else None, 1, group=group)
        return x

    def strided_list(group: Any) -> Any:
        whole = empty(2 * size * 3)
        taken = [whole[each * 3 : each * 3 + 3] for each in range(size)]
        dist.all_to_all(taken, [mine(6)[::2] for _ in range(size)], group=group)
        return whole

    def gathered_into_gaps(group: Any) -> Any:
        whole = empty(2 * size * 3)
        dist.all_gather([whole[each::size][::2] for each in range(size)], mine(3), group=group)
        return whole

    def exchanged_into_gaps(group: Any) -> Any:
        whole = empty(2 * size * 3)
        taken = [whole[each::size][::2] for each in range(size)]
        dist.all_to_all(taken, [mine(3) for _ in range(size)], group=group)
        return whole

    def split(group: Any) -> Any:
        sends = [peer + 1 for peer in range(size)]
        x = np.zeros((size * (rank + 1), 2), dtype.to_numpy())
        source = mine(2 * sum(sends)).reshape(-1, 2)
        dist.all_to_all_single(x, source, [rank + 1] * size, sends, group=group)
        return x

    def ring(group: Any) -> Any:
        x = empty(COUNT)
        works = [
            dist.irecv(x, (rank - 1) % size, group=group, tag=3),
            dist.isend(mine(COUNT), (rank + 1) % size, group=group, tag=3),
        ]
        for work in works:
            work.wait()
        return x

    into_gaps = [gathered_into_gaps, exchanged_into_gaps]
    whole = [broadcast, uneven_gather, own_block, gather, scatter, strided_list, split, ring]
    return [*whole, *into_gaps]


def compare(dtypes: Iterable[Dtype]) -> int:
    """How many ops were compared, on the default group and on one of our own engine."""
    own = dist.new_group(backend="distdbg")
    rank, size = dist.get_rank(), dist.get_world_size()
    count = 0
    for dtype in dtypes:
        steps = [(step.__name__, step) for step in moves(dtype, rank, size) if dtype in MOVED]
        for op in ops_of(dtype):
            made = reductions(dtype, op, rank, size)
            steps += [(f"{step.__name__} {op}", step) for step in made]
        for name, step in steps:
            found, expected = step(None), step(own)
            if expected is not None:
                assert are_same(dtype, found, expected), (dtype.label, name, found, expected)
            count += 1
    dist.destroy_process_group(own)
    return count


def are_same(dtype: Dtype, found: Any, expected: Any) -> bool:
    if found.tobytes() == expected.tobytes():
        return True
    if not dtype.is_floating:
        return False
    wide = found.astype(np.float64), expected.astype(np.float64)
    return np.array_equal(*wide, equal_nan=True)


def compare_all() -> tuple[int, int]:
    """In all dtypes; then in some with a library that can count to two."""
    library = started()
    assert library is not None
    whole = compare(Dtype)
    limit, library.largest = library.largest, 2
    parts = compare([Dtype.float32, Dtype.bfloat16])
    library.largest = limit
    return whole, parts
