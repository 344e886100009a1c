"""broadcast, all_reduce, reduce, all_gather, barrier: what each leaves in which array."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise

Array = npt.NDArray[Any]


@promise("`broadcast` copies the array of `src` to all ranks, in place")
def test_broadcast() -> None:
    def run(rank: int) -> float:
        x = np.full(3, float(rank))
        dist.broadcast(x, src=1)
        return float(x.sum())

    assert on_ranks(run, 3) == [3.0] * 3


@promise("`broadcast` takes `group_src`, a rank of the group")
def test_broadcast_in_a_group() -> None:
    def run(rank: int) -> int:
        group = dist.new_group([1, 2])
        x = np.array([rank])
        if rank:
            dist.broadcast(x, group=group, group_src=0)
        return int(x[0])

    assert on_ranks(run, 3) == [0, 1, 1]


@promise("`broadcast` needs `src` or `group_src`")
def test_broadcast_without_a_source() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="src"):
            dist.broadcast(np.zeros(1))

    on_ranks(run)


@promise("`src` and `dst` must be in the group")
def test_a_root_outside() -> None:
    def run(rank: int) -> None:
        group = dist.new_group([0])
        if rank == 0:
            with pytest.raises(ValueError, match="=1 is not in group"):
                dist.broadcast(np.zeros(1), 1, group)
            with pytest.raises(ValueError, match="=1 is not in group"):
                dist.reduce(np.zeros(1), 1, group=group)

    on_ranks(run)


@promise("`all_reduce` leaves the same result on all ranks, in place")
def test_all_reduce() -> None:
    def run(rank: int) -> list[int]:
        x = np.arange(2) + 1 + 2 * rank
        dist.all_reduce(x, op=dist.ReduceOp.SUM)
        return x.tolist()

    assert on_ranks(run) == [[4, 6], [4, 6]]


@promise("`all_reduce` takes complex numbers")
def test_all_reduce_of_complex_numbers() -> None:
    def run(rank: int) -> list[complex]:
        x = np.array([1 + 1j, 2 + 2j], np.complex64) + 2 * rank * (1 + 1j)
        dist.all_reduce(x)
        return x.tolist()

    assert on_ranks(run) == [[4 + 4j, 6 + 6j]] * 2


@promise("The results of `all_reduce` are equal bit by bit on all ranks")
def test_all_reduce_is_equal_everywhere() -> None:
    def run(rank: int) -> bytes:
        x = np.random.default_rng(rank).random(1000, np.float32)
        dist.all_reduce(x)
        return x.tobytes()

    assert len(set(on_ranks(run, 3))) == 1


@promise("`all_reduce_coalesced` reduces each array of a list")
def test_all_reduce_coalesced() -> None:
    def run(rank: int) -> list[list[float]]:
        arrays = [np.ones(1), np.full(2, 2.0)]
        dist.all_reduce_coalesced(arrays)
        return [x.tolist() for x in arrays]

    assert on_ranks(run) == [[[2.0], [4.0, 4.0]]] * 2


@promise("`reduce` leaves the result on `dst`")
def test_reduce() -> None:
    def run(rank: int) -> float:
        x = np.full(1, float(rank + 1))
        dist.reduce(x, dst=1)
        return float(x[0])

    assert on_ranks(run, 3)[1] == 6.0


@promise(
    "`reduce` may change the array of ranks other than `dst`",
    here="stricter",
    note="it stays as it was",
)
def test_reduce_elsewhere() -> None:
    def run(rank: int) -> float:
        x = np.full(1, float(rank + 1))
        dist.reduce(x, dst=1)
        return float(x[0])

    assert on_ranks(run, 3)[::2] == [1.0, 3.0]


@promise("`reduce` takes `group_dst`, a rank of the group")
def test_reduce_in_a_group() -> None:
    def run(rank: int) -> int:
        group = dist.new_group([1, 2])
        x = np.array([rank])
        if rank:
            dist.reduce(x, group=group, group_dst=1)
        return int(x[0])

    assert on_ranks(run, 3) == [0, 1, 3]


@promise("`barrier` returns when all ranks of the group have called it")
def test_barrier() -> None:
    is_there = threading.Event()

    def run(rank: int) -> bool:
        if rank == 1:
            is_there.set()
        dist.barrier()
        return is_there.is_set()

    assert on_ranks(run) == [True, True]


@promise("`barrier(async_op=True)` returns a `Work` that ends when all have come")
def test_an_asynchronous_barrier() -> None:
    may_come = threading.Event()

    def run(rank: int) -> None:
        if rank == 1:
            may_come.wait(120)
        work = dist.barrier(async_op=True)
        assert work is not None
        if rank == 0:
            assert not work.is_completed()
            may_come.set()
        assert work.wait()

    on_ranks(run)


@promise("`barrier` takes `device_ids`, which say nothing on the CPU")
def test_barrier_with_devices() -> None:
    assert on_ranks(lambda _: dist.barrier(device_ids=[0])) == [None, None]


@promise("Arrays of any shape are taken, also of no element and of no dimension")
def test_shapes() -> None:
    def run(rank: int) -> float:
        for shape in ((2, 3), (0,), ()):
            x = np.ones(shape)
            dist.all_reduce(x)
            assert x.shape == shape
            assert (x == 2).all()
        return 0.0

    on_ranks(run)


@promise("Integers, floats, complex numbers and booleans can be sent")
@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64", "bool"],
)
def test_dtypes(dtype: str) -> None:
    def run(rank: int) -> Array:
        x = np.full(3, rank).astype(dtype)
        dist.broadcast(x, 1)
        return x

    for x in on_ranks(run):
        np.testing.assert_array_equal(x, np.ones(3, dtype))


@promise(
    "Arrays are contiguous",
    here="more",
    note="slices with strides are taken as well",
)
def test_strides() -> None:
    def run(rank: int) -> list[float]:
        x = np.ones(4)
        dist.all_reduce(x[::2])
        return x.tolist()

    assert on_ranks(run) == [[2.0, 1.0, 2.0, 1.0]] * 2


@promise(
    "All ranks of a group call the same collectives with the same sizes and types",
    here="stricter",
    note="what differs is a `MismatchError` on every rank, and no output is written",
)
def test_ranks_that_differ() -> None:
    def run(rank: int) -> None:
        x = np.ones(3 + rank)
        with pytest.raises(dist.MismatchError) as caught:
            dist.all_reduce(x)
        assert "all_reduce" in str(caught.value)
        assert (x == 1).all()

    on_ranks(run)


@promise(
    "Ranks that call different collectives have undefined behaviour",
    here="stricter",
    note="it is a `MismatchError` on every rank",
)
def test_different_collectives() -> None:
    def run(rank: int) -> None:
        with pytest.raises(dist.MismatchError, match="broadcast"):
            dist.all_reduce(np.ones(1)) if rank else dist.broadcast(np.ones(1), 0)

    on_ranks(run)
