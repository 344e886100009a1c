"""Ranks that differ, for real: each learns who called what, no output is touched, the group goes on."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import MismatchError


def errors_of(function: Callable[[int], Any], size: int = 3) -> list[MismatchError]:
    """What each rank gets from a function that differs between ranks; then an op that all agree on."""

    def run() -> MismatchError:
        with pytest.raises(MismatchError) as caught:
            function(dist.get_rank())
        x = np.ones(1)
        dist.all_reduce(x)
        assert x[0] == size
        return caught.value

    return dist.run_threads(run, size, timeout_s=20.0)


def all_say(errors: list[MismatchError], *words: str) -> None:
    for error in errors:
        for word in words:
            assert word in str(error)
    assert len({error.what for error in errors}) == 1


def test_an_object_form_against_the_op_it_is_made_of() -> None:
    def differ(rank: int) -> None:
        if rank == 1:
            sizes = [np.zeros(1, np.int64) for _ in range(3)]
            dist.all_gather(sizes, np.zeros(1, np.int64))
        else:
            dist.all_gather_object([None] * 3, "x")

    all_say(errors_of(differ), "all_gather_object on ranks 0,2, all_gather on rank 1")


def test_two_object_forms_that_begin_alike() -> None:
    def differ(rank: int) -> None:
        if rank == 1:
            dist.gather_object("x", dst=0)
        else:
            dist.all_gather_object([None] * 3, "x")

    all_say(errors_of(differ), "all_gather_object on ranks 0,2, gather_object on rank 1")


def test_object_lists_of_two_lengths() -> None:
    def differ(rank: int) -> None:
        dist.broadcast_object_list([rank] * (2 if rank == 2 else 3), src=0)

    errors = errors_of(differ)
    all_say(errors, "broadcast_object_list #1", "3 objects on ranks 0-1, 2 objects on rank 2")
    assert errors[0].ranks == [2]


def test_names_of_one_op_mix() -> None:
    def mix() -> float:
        x, out = np.ones(2), np.zeros(4)
        if dist.get_rank() == 0:
            dist.all_gather_single(out, x)
        else:
            dist.all_gather_into_tensor(out, x)
        return float(out.sum())

    assert dist.run_threads(mix, 2) == [4.0, 4.0]


def reduce_block(*counts: int) -> list[np.ndarray[Any, Any]]:
    arrays = [np.ones(count) for count in counts]
    dist.all_reduce_coalesced(arrays)
    return arrays


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("odd", [(4, 5), (4, 5, 6, 7), (4,), (5, 4, 6), (4, 5, 7)])
def test_blocks_that_differ_anywhere_are_refused_at_their_first_op(
    odd: tuple[int, ...], size: int
) -> None:
    kept: dict[int, list[np.ndarray[Any, Any]]] = {}

    def differ(rank: int) -> None:
        kept[rank] = arrays = [np.ones(n) for n in (odd if rank == 1 else (4, 5, 6))]
        dist.all_reduce_coalesced(arrays)

    errors = errors_of(differ, size)
    how = "of a block of 3) on rank" if len(odd) == 3 else "a block of 3 on rank"
    all_say(errors, "#1 on", how)
    assert all((x == 1).all() for arrays in kept.values() for x in arrays)


def test_the_op_after_a_refused_block_is_no_part_of_it() -> None:
    def differ(rank: int) -> None:
        try:
            reduce_block(4, 5, 6 + rank)
        finally:
            assert [x.sum() for x in reduce_block(2, 3)] == [4.0, 6.0]

    errors_of(differ, 2)


def test_a_block_of_one_is_the_op_alone() -> None:
    def mix() -> float:
        x = np.ones(2)
        if dist.get_rank() == 0:
            dist.all_reduce_coalesced([x])
        else:
            dist.all_reduce(x)
        return float(x[0])

    assert dist.run_threads(mix, 2) == [2.0, 2.0]


def test_equal_blocks_over_and_over() -> None:
    def many() -> list[float]:
        return [float(sum(x.sum() for x in reduce_block(k % 3 + 1, 2, 3))) for k in range(30)]

    assert dist.run_threads(many, 2) == [[(k % 3 + 6) * 2.0 for k in range(30)]] * 2


def test_premul_sum_against_sum() -> None:
    def differ(rank: int) -> None:
        op = dist.make_premul_sum(0.5) if rank == 1 else dist.ReduceOp.SUM
        dist.all_reduce(np.ones(3), op)

    # Both before and after the other was seen: plans are kept.
    def again(rank: int) -> None:
        dist.all_reduce(np.ones(3), dist.make_premul_sum(0.5))
        dist.all_reduce(np.ones(3))
        differ(rank)

    all_say(errors_of(differ), "op SUM on ranks 0,2, op PREMUL_SUM on rank 1")
    all_say(errors_of(again), "op SUM on ranks 0,2, op PREMUL_SUM on rank 1")


@pytest.mark.parametrize("times", [1, 3])
def test_factors_that_differ_are_named(times: int) -> None:
    def differ(rank: int) -> None:
        for turn in range(times):  # each after another factor of the same array
            factor = 0.1 if turn < times - 1 else 2.5 if rank == 1 else 0.5
            dist.all_reduce(np.ones(3), dist.make_premul_sum(factor))

    def differ_scattered(rank: int) -> None:
        op = dist.make_premul_sum(1.0 + rank // 2)
        dist.reduce_scatter_tensor(np.ones(1), np.ones(3), op)

    def differ_in_a_block(rank: int) -> None:
        op = dist.make_premul_sum(1.0 + rank // 2)
        dist.all_reduce_coalesced([np.ones(1), np.ones(3)], op)

    all_say(errors_of(differ), "factor 0.5 on ranks 0,2, factor 2.5 on rank 1")
    all_say(errors_of(differ_scattered), "factor 1.0 on ranks 0-1, factor 2.0 on rank 2")
    all_say(errors_of(differ_in_a_block), "op PREMUL_SUM factor 1.0")


def test_a_program_may_use_any_number_of_factors() -> None:
    def weigh() -> float:
        x = np.ones(1)
        for turn in range(20):
            dist.all_reduce(x, dist.make_premul_sum(0.5 + turn % 2 / 1e9))
        return float(x[0])

    assert dist.run_threads(weigh, 2) == [pytest.approx(1.0)] * 2


def test_an_op_that_failed_keeps_its_arrays_no_longer_than_its_error() -> None:
    def program() -> bool:
        array = np.ones(4 + dist.get_rank())
        seen = weakref.ref(array)
        try:
            dist.all_reduce(array)
        except dist.MismatchError:
            del array
        return seen() is None

    gc.disable()
    try:
        assert dist.run_threads(program, 2) == [True, True]
    finally:
        gc.enable()
