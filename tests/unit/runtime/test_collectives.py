"""Every collective over the reference engine: results, and the forms that overlap or are uneven."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import distdbg as dist
from distdbg.errors import MismatchError, UsageError
from tests.support.store_ranks import REFERENCE, run_store_ranks

RunRanks = Callable[..., list[Any]]


@pytest.fixture(params=[REFERENCE, "gloo"])
def run_ranks(request: pytest.FixtureRequest) -> RunRanks:
    """Ranks as threads, over the reference engine and over the CPU engine."""
    return partial(run_store_ranks, backend=request.param)


SIZES = [1, 2, 3, 4]
Floats = npt.NDArray[np.float32]


def mine(rank: int, count: int = 4) -> Floats:
    return np.arange(count, dtype=np.float32) + 10 * rank


@pytest.mark.parametrize("size", SIZES)
def test_all_reduce_sums_in_place(run_ranks: RunRanks, size: int) -> None:
    def run(rank: int) -> Floats:
        x = mine(rank)
        assert dist.all_reduce(x) is None
        return x

    expected = sum(mine(rank) for rank in range(size))
    for result in run_ranks(run, size):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (dist.ReduceOp.SUM, 9),
        (dist.ReduceOp.AVG, 3),
        (dist.ReduceOp.PRODUCT, 24),
        (dist.ReduceOp.MIN, 2),
        (dist.ReduceOp.MAX, 4),
        (dist.ReduceOp.BAND, 0),
        (dist.ReduceOp.BOR, 7),
        (dist.ReduceOp.BXOR, 5),
    ],
)
def test_all_reduce_ops_on_integers(run_ranks: RunRanks, op: dist.ReduceOp, expected: int) -> None:
    def run(rank: int) -> int:
        x = np.array([rank + 2], np.int64)
        dist.all_reduce(x, op)
        return int(x[0])

    assert run_ranks(run, 3) == [expected] * 3


def test_premul_sum_scales_each_ranks_part_and_leaves_no_trace_of_it(run_ranks: RunRanks) -> None:
    def run(rank: int) -> tuple[float, float, float]:
        x = np.array([float(rank + 1)])
        dist.all_reduce(x, dist.make_premul_sum(0.5))
        y = np.array([float(rank + 1)])
        dist.reduce(y, 0, dist.make_premul_sum(2.0))
        out = np.zeros(1)
        dist.reduce_scatter(out, [np.ones(1), np.ones(1)], dist.make_premul_sum(3.0))
        return float(x[0]), float(y[0]), float(out[0])

    assert run_ranks(run, 2) == [(1.5, 6.0, 6.0), (1.5, 2.0, 6.0)]


@pytest.mark.parametrize("size", SIZES)
def test_broadcast_sends_the_roots_array(run_ranks: RunRanks, size: int) -> None:
    def run(rank: int) -> Floats:
        x = mine(rank)
        dist.broadcast(x, src=size - 1)
        return x

    for result in run_ranks(run, size):
        np.testing.assert_array_equal(result, mine(size - 1))


def test_reduce_changes_the_roots_array_only(run_ranks: RunRanks) -> None:
    def run(rank: int) -> Floats:
        x = mine(rank)
        dist.reduce(x, dst=1)
        return x

    results = run_ranks(run, 3)
    np.testing.assert_array_equal(results[1], mine(0) + mine(1) + mine(2))
    np.testing.assert_array_equal(results[0], mine(0))
    np.testing.assert_array_equal(results[2], mine(2))


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_collects_in_group_order(run_ranks: RunRanks, size: int) -> None:
    def run(rank: int) -> list[Floats]:
        blocks = [np.zeros(4, np.float32) for _ in range(size)]
        dist.all_gather(blocks, mine(rank))
        return blocks

    for blocks in run_ranks(run, size):
        for rank, block in enumerate(blocks):
            np.testing.assert_array_equal(block, mine(rank))


@pytest.mark.parametrize(
    "function", [dist.all_gather_into_tensor, dist.all_gather_single, dist._all_gather_base]
)
def test_all_gather_into_one_array_also_in_place(run_ranks: RunRanks, function: object) -> None:
    def run(rank: int) -> tuple[Floats, Floats, Floats]:
        out = np.zeros((3, 4), np.float32)
        function(out, mine(rank))  # type: ignore[operator]
        own_block = np.zeros((3, 4), np.float32)
        own_block[rank] = mine(rank)
        function(own_block, own_block[rank])  # type: ignore[operator]
        shifted = np.zeros(12, np.float32)
        shifted[2:6] = mine(rank)
        function(shifted, shifted[2:6])  # type: ignore[operator]
        return out, own_block, shifted

    expected = np.stack([mine(rank) for rank in range(3)])
    for out, own_block, shifted in run_ranks(run, 3):
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(own_block, expected)
        np.testing.assert_array_equal(shifted, expected.reshape(-1))


def test_gather_and_scatter_default_to_rank_0(run_ranks: RunRanks) -> None:
    def run(rank: int) -> tuple[list[Floats] | None, Floats]:
        blocks = [np.zeros(4, np.float32) for _ in range(3)] if rank == 0 else None
        dist.gather(mine(rank), blocks)
        out = np.zeros(4, np.float32)
        dist.scatter(out, [mine(7), mine(8), mine(9)] if rank == 0 else None)
        return blocks, out

    results = run_ranks(run, 3)
    assert results[0][0] is not None
    for rank in range(3):
        np.testing.assert_array_equal(results[0][0][rank], mine(rank))
        np.testing.assert_array_equal(results[rank][1], mine(7 + rank))


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter_forms_agree(run_ranks: RunRanks, size: int) -> None:
    def run(rank: int) -> list[Floats]:
        flat = mine(rank, 2 * size)
        results = []
        for form in (dist.reduce_scatter_tensor, dist.reduce_scatter_single):
            out = np.zeros(2, np.float32)
            form(out, flat.copy())
            results.append(out)
        out = np.zeros(2, np.float32)
        dist.reduce_scatter(out, np.split(flat, size))
        results.append(out)
        in_place = flat.copy()
        dist.reduce_scatter_tensor(in_place[:2], in_place)
        results.append(in_place[:2])
        return results

    total = np.sum([mine(rank, 2 * size) for rank in range(size)], axis=0)
    for rank, results in enumerate(run_ranks(run, size)):
        for result in results:
            np.testing.assert_array_equal(result, total[2 * rank : 2 * rank + 2])


@pytest.mark.parametrize("counts", [[1, 3, 2], [0, 4, 0], [5000, 1, 70000]])
def test_all_gather_of_blocks_of_different_sizes(run_ranks: RunRanks, counts: list[int]) -> None:
    def run(rank: int) -> list[Floats]:
        blocks = [np.zeros(count, np.float32) for count in counts]
        dist.all_gather(blocks, mine(rank, counts[rank]))
        own = blocks[rank]  # in place: the input is its own block of the list
        dist.all_gather(blocks, own)
        return blocks

    for blocks in run_ranks(run, 3):
        for source, block in enumerate(blocks):
            np.testing.assert_array_equal(block, mine(source, counts[source]))


@pytest.mark.parametrize("counts", [[1, 3, 2], [0, 4, 0], [5000, 1, 70000]])
@pytest.mark.parametrize("op", [dist.ReduceOp.SUM, dist.ReduceOp.MAX])
def test_reduce_scatter_of_blocks_of_different_sizes(
    run_ranks: RunRanks, counts: list[int], op: dist.ReduceOp
) -> None:
    def run(rank: int) -> Floats:
        blocks = [mine(rank, count) + to for to, count in enumerate(counts)]
        out = np.zeros(counts[rank], np.float32)
        dist.reduce_scatter(out, blocks, op=op)
        return out

    fold = np.sum if op is dist.ReduceOp.SUM else np.max
    for rank, out in enumerate(run_ranks(run, 3)):
        expected = fold([mine(source, counts[rank]) + rank for source in range(3)], axis=0)
        np.testing.assert_array_equal(out, expected)


def test_ranks_that_expect_different_blocks_are_told(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        counts = [1, 2, 3 if rank == 2 else 4]
        blocks = [np.zeros(count, np.float32) for count in counts]
        with pytest.raises(MismatchError, match="all_gather"):
            dist.all_gather(blocks, mine(rank, counts[rank]))
        assert not any(block.any() for block in blocks)

    run_ranks(run, 3)


def test_all_to_all_with_blocks_of_any_size(run_ranks: RunRanks) -> None:
    def run(rank: int) -> list[Floats]:
        inputs = [np.full(rank + to, 10 * rank + to, np.float32) for to in range(3)]
        outputs = [np.zeros(rank + source, np.float32) for source in range(3)]
        dist.all_to_all(outputs, inputs)
        return outputs

    for rank, outputs in enumerate(run_ranks(run, 3)):
        for source, block in enumerate(outputs):
            np.testing.assert_array_equal(block, np.full(rank + source, 10 * source + rank))


def test_all_to_all_single_even_uneven_and_in_place(run_ranks: RunRanks) -> None:
    def run(rank: int) -> tuple[Floats, Floats, Floats]:
        even = np.zeros(4, np.float32)
        dist.all_to_all_single(even, mine(rank))
        in_place = mine(rank)
        dist.all_to_all_single(in_place, in_place)
        # rank 0 keeps 1 row and sends 2; rank 1 sends 3 and keeps 1
        source = np.arange(3 if rank == 0 else 4, dtype=np.float32)[:, None] + 10 * rank
        out = np.zeros((4 if rank == 0 else 3, 1), np.float32)
        splits = [1, 2] if rank == 0 else [3, 1]
        expected = [1, 3] if rank == 0 else [2, 1]
        dist.all_to_all_single(out, source, expected, splits)
        return even, in_place, out[:, 0]

    first, second = run_ranks(run, 2)
    np.testing.assert_array_equal(first[0], [0, 1, 10, 11])
    np.testing.assert_array_equal(second[0], [2, 3, 12, 13])
    np.testing.assert_array_equal(first[1], [0, 1, 10, 11])
    np.testing.assert_array_equal(second[1], [2, 3, 12, 13])
    np.testing.assert_array_equal(first[2], [0, 10, 11, 12])
    np.testing.assert_array_equal(second[2], [1, 2, 13])


def test_coalesced_forms(run_ranks: RunRanks) -> None:
    def run(rank: int) -> tuple[list[Floats], list[list[Floats]]]:
        arrays = [mine(rank), mine(rank, 2)]
        dist.all_reduce_coalesced(arrays)
        # One list per rank, one array per input.
        table = [[np.zeros(4, np.float32), np.zeros(2, np.float32)] for _ in range(2)]
        work = dist.all_gather_coalesced(table, [mine(rank), mine(rank, 2)], async_op=True)
        assert work is not None
        assert work.wait()
        return arrays, table

    for arrays, table in run_ranks(run, 2):
        np.testing.assert_array_equal(arrays[0], mine(0) + mine(1))
        np.testing.assert_array_equal(arrays[1], mine(0, 2) + mine(1, 2))
        for rank in range(2):
            np.testing.assert_array_equal(table[rank][0], mine(rank))
            np.testing.assert_array_equal(table[rank][1], mine(rank, 2))


def test_the_coalescing_block_starts_its_ops_at_the_end(run_ranks: RunRanks) -> None:
    def run(rank: int) -> tuple[bool, Floats, Floats]:
        x, y = mine(rank), mine(rank)
        with dist._coalescing_manager(async_ops=True) as block:
            dist.all_reduce(x)
            work = dist.all_reduce(y, async_op=True)
            is_unchanged = bool((x == mine(rank)).all())
            assert work is not None
            with pytest.raises(UsageError):
                work.wait()
        block.wait()
        return is_unchanged, x, y

    for is_unchanged, x, y in run_ranks(run, 2):
        assert is_unchanged
        np.testing.assert_array_equal(x, mine(0) + mine(1))
        np.testing.assert_array_equal(y, mine(0) + mine(1))


def test_the_coalescing_block_takes_ops_of_one_kind(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        def mix() -> None:
            with dist._coalescing_manager():
                dist.all_reduce(mine(rank))
                dist.broadcast(mine(rank), 0)

        with pytest.raises(UsageError, match="one kind"):
            mix()
        x = mine(rank)
        dist.all_reduce(x)  # the group is usable again, and nothing of the block was started
        np.testing.assert_array_equal(x, mine(0) + mine(1))

    run_ranks(run, 2)


def test_barrier_takes_torchs_arguments(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        dist.barrier()
        dist.barrier(device_ids=[0])
        work = dist.barrier(async_op=True)
        assert work is not None
        assert work.wait()
        assert work.result() == []

    run_ranks(run, 3)


def test_ranks_that_differ_get_a_mismatch_error(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        with pytest.raises(MismatchError, match="all_reduce"):
            dist.all_reduce(mine(rank, 3 + rank))

    run_ranks(run, 2)


def test_empty_and_zero_dimensional_arrays(run_ranks: RunRanks) -> None:
    def run(rank: int) -> tuple[int, float]:
        empty = np.zeros((0, 3), np.float32)
        dist.all_reduce(empty)
        out = np.zeros((0, 3), np.float32)
        dist.all_gather_into_tensor(out, empty)
        dist.all_to_all_single(out, empty)
        point = np.array(float(rank + 1))
        dist.all_reduce(point)
        pair = np.zeros(2)
        dist.all_gather_into_tensor(pair, np.array(float(rank)))
        assert pair.tolist() == [0.0, 1.0]
        return out.size, float(point)

    assert run_ranks(run, 2) == [(0, 3.0)] * 2


def test_arrays_that_are_not_contiguous(run_ranks: RunRanks) -> None:
    def run(rank: int) -> npt.NDArray[np.float64]:
        base = np.zeros((4, 6)) + rank
        dist.all_reduce(base[::2, ::3])
        return base

    for rank, base in enumerate(run_ranks(run, 2)):
        expected = np.zeros((4, 6)) + rank
        expected[::2, ::3] = 1
        np.testing.assert_array_equal(base, expected)
