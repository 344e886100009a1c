"""Functional collectives: new arrays, arguments as they were, and errors that name the user's call."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import distdbg as dist
from distdbg import functional as F
from tests.support.store_ranks import REFERENCE, run_store_ranks

RunRanks = Callable[..., list[Any]]
Floats = npt.NDArray[np.float32]


@pytest.fixture(params=[REFERENCE, "gloo"])
def run_ranks(request: pytest.FixtureRequest) -> RunRanks:
    """Ranks as threads, over the reference engine and over the CPU engine."""
    return partial(run_store_ranks, backend=request.param)


def of(rank: int, *shape: int) -> Floats:
    """Whole numbers, so that sums are exact."""
    count = int(np.prod(shape))
    return (np.arange(count, dtype=np.float32) + 100 * rank).reshape(shape)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_results_are_new_and_arguments_stay_as_they_are(run_ranks: RunRanks, size: int) -> None:
    def run(rank: int) -> None:
        x, rows = of(rank, 2, 3), of(rank, 2 * size, size)
        everybody = [of(each, 2, 3) for each in range(size)]
        total, last = sum(everybody), size - 1
        all_rows = sum(of(each, 2 * size, size) for each in range(size))
        results = [
            (F.all_reduce(x), total),
            (F.all_reduce(x, "max"), everybody[last]),
            (F.all_reduce(x, dist.make_premul_sum(2.0)), 2 * total),
            (F.all_gather(x), np.concatenate(everybody)),
            (F.all_gather(x, 1), np.concatenate(everybody, 1)),
            (F.all_gather(x, -1), np.concatenate(everybody, 1)),
            (F.reduce_scatter(rows), all_rows[2 * rank : 2 * rank + 2]),
            (F.reduce_scatter(rows, "sum", 1), all_rows[:, rank : rank + 1]),
            (F.broadcast(x, last), everybody[last]),
            (F.reduce(x, last), total if rank == last else 0 * x),
            (F.permute(x, [*range(1, size), 0]), everybody[rank - 1]),
            (F.all_to_all(rows), np.concatenate(
                [of(each, 2 * size, size)[2 * rank : 2 * rank + 2] for each in range(size)])),
            (np.stack(F.all_gather_list(x)), np.stack(everybody)),
            (F.reduce_scatter_list([x] * size), total),
            (np.stack(F.all_to_all_list([x + at for at in range(size)])), np.stack(everybody) + rank),
            (np.stack(F.gather(x, last)), np.stack(everybody) * (rank == last)),
            (F.scatter([x + at for at in range(size)] if rank == last else x, last),
             everybody[last] + rank),
            (F.all_reduce_coalesced([x, x])[1], total),
            (F.all_gather_into_tensor_coalesced([x, x])[0], np.concatenate(everybody)),
            (F.reduce_scatter_tensor_coalesced([rows])[0], all_rows[2 * rank : 2 * rank + 2]),
        ]  # fmt: skip
        for at, (found, expected) in enumerate(results):
            assert found.dtype == np.float32, at
            assert np.array_equal(found, np.asarray(expected, np.float32)), at
            assert not np.shares_memory(found, x), at
        assert np.array_equal(x, of(rank, 2, 3))
        assert np.array_equal(rows, of(rank, 2 * size, size))

    run_ranks(run, size)


def test_parts_may_differ_in_length(run_ranks: RunRanks) -> None:
    def run(rank: int) -> list[float]:
        # Rank 0 keeps one and gives two, rank 1 gives one and keeps two.
        splits = [1, 2]
        found: Floats = F.all_to_all(of(rank, 3), [splits[rank]] * 2, splits)
        lists = [np.ones(1), np.ones(3)]
        assert F.reduce_scatter_list(lists).tolist() == [2.0] * (3 if rank else 1)
        return found.tolist()

    assert run_ranks(run, 2) == [[0, 100], [1, 2, 101, 102]]


def test_scalars_empty_arrays_and_strided_ones(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        assert F.all_reduce(np.float64(rank)).shape == ()
        assert F.all_gather(np.float64(rank)).tolist() == [0.0, 1.0]
        assert F.all_reduce(np.empty((0, 3))).shape == (0, 3)
        assert F.all_gather(np.empty((2, 0)), 1).shape == (2, 0)
        assert F.permute(np.array(rank), [1, 0]) == 1 - rank
        across = of(rank, 4, 4).T[::2]
        assert np.array_equal(F.all_reduce(across), (of(0, 4, 4) + of(1, 4, 4)).T[::2])
        assert np.array_equal(F.permute(across, [1, 0]), of(1 - rank, 4, 4).T[::2])

    run_ranks(run, 2)


def test_an_async_op_gives_its_array_when_it_is_waited_for(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        works = [
            F.all_reduce(of(rank, 3), async_op=True),
            F.all_gather(of(rank, 1, 2), 1, async_op=True),
            F.all_reduce_coalesced([of(rank, 1), of(rank, 2)], async_op=True),
        ]
        first, second, third = (work.wait() for work in works)
        assert first.tolist() == [100, 102, 104]
        assert second.tolist() == [[0, 1, 100, 101]]
        assert [each.tolist() for each in third] == [[100], [100, 102]]
        assert works[0].is_completed()
        assert works[0].exception() is None
        assert works[0].result() is first
        assert F.wait_tensor(works[1]) is second
        assert F.wait_tensor(first) is first
        assert np.sum(F.all_reduce(of(rank, 3), async_op=True)) == 306
        assert np.asarray(F.all_reduce(np.ones(1), async_op=True), np.int32).tolist() == [2]

    run_ranks(run, 2)


def test_a_mesh_and_a_dimension_name_a_group() -> None:
    def run(rank: int) -> list[float]:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        by_dim = F.all_reduce(of(rank, 1), group=(mesh, "dp"))
        by_slice = F.all_reduce(of(rank, 1), group=mesh["tp"])
        by_group = F.all_reduce(of(rank, 1), group=mesh.get_group(1))
        return [float(by_dim[0]), float(by_slice[0]), float(by_group[0])]

    found = run_store_ranks(run, 4, backend="gloo")
    assert found == [[200, 100, 100], [400, 100, 100], [200, 500, 500], [400, 500, 500]]


def test_wrong_arguments_are_told_before_anything_is_sent() -> None:
    def run(rank: int) -> None:
        x = of(rank, 3, 2)
        with dist._coalescing_manager(), pytest.raises(ValueError, match="inside a coalescing"):
            F.all_reduce(x)
        outside = dist.new_group([0])
        mesh = dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
        long = [np.ones(2), np.ones(2, np.float32)]
        wrong: list[tuple[Callable[[], Any], str]] = [
            (lambda: F.all_reduce([1, 2]), "all_reduce: tensor is a list of 2, not an array"),
            (lambda: F.all_reduce(x, "mean"), "one of sum, avg, product, min, max, band, bor, bxor"),
            (lambda: F.all_reduce(x, group=3), "group must be a ProcessGroup, a DeviceMesh"),
            (lambda: F.all_gather(x, dist.group.WORLD), "gather_dim must be an int, got a group"),
            (lambda: F.all_gather(x, 2), "gather_dim=2 is not a dimension of an array of 2"),
            (lambda: F.reduce_scatter(x), "dimension 0 of 3 cannot be cut into 2 equal parts"),
            (lambda: F.all_to_all(x, [1, 2]), "input_split_sizes is missing: give both or neither"),
            (lambda: F.all_to_all(x), "is not a multiple of the group's size 2"),
            (lambda: F.all_to_all(np.float32(1)), "no dimensions cannot be cut"),
            (lambda: F.all_to_all(x, [1, 2], [1, 1]), "all_to_all: input_split_sizes sum up to 2"),
            (lambda: F.all_to_all_list(long), "all_to_all_list: arrays of one call must have one dtype"),
            (lambda: F.reduce_scatter_list(long), "reduce_scatter_list: arrays of one call"),
            (lambda: F.all_reduce_coalesced([x], "band"), "all_reduce_coalesced: reduce op BAND"),
            (lambda: F.all_reduce(x, group=mesh), 'hint: group=(mesh, "dp")'),
            (lambda: F.all_reduce(x, group=mesh), "all_reduce: group is a mesh of 2 dimensions"),
            (lambda: F.all_reduce(x, group=(mesh, "pp")), "all_reduce: the mesh has no dimension 'pp'"),
            (lambda: F.permute(x, [0, 0]), "dst must have each of the group ranks 0-1 once"),
            (lambda: F.all_to_all_list([x, x[:1]]), "arrays of one shape are needed"),
            (lambda: F.reduce_scatter_list([x]), "tensors has 1 arrays, expected 2"),
            (lambda: F.scatter(None), "give an array of the shape of this rank's part"),
            (lambda: F.broadcast(x, 7), "7"),
            (lambda: F.all_reduce_coalesced([]), "tensors is empty"),
            (lambda: F.reduce_scatter_tensor_coalesced([x.T], "sum", [1]), "first dimension"),
            (lambda: F.reduce_scatter_tensor_coalesced([np.array(1.0)]), "tensors[0], 1, cannot be cut"),
        ]  # fmt: skip
        for call, words in wrong:
            with pytest.raises(dist.UsageError) as caught:
                call()
            assert words in str(caught.value)
        if rank:
            with pytest.raises(ValueError, match="not in the given group, so it gets no result"):
                F.all_reduce(x, group=outside)
        dist.barrier()

    run_store_ranks(run, 2, backend="gloo")


def test_a_mismatch_names_the_lines_of_the_calls() -> None:
    def run(rank: int) -> list[str]:
        texts = []
        for op in (
            lambda: F.all_gather(of(rank, 2)) if rank else F.all_reduce(of(rank, 2)),
            lambda: F.permute(of(rank, 2), [1, 0] if rank else [0, 1]),
            lambda: F.all_to_all(of(rank, 4 + rank), [2, 2], [2 + rank, 2]),
            lambda: F.all_to_all_list([of(rank, 2 + rank)] * 2),
        ):
            with pytest.raises(dist.MismatchError) as caught:
                op()
            texts.append(str(caught.value))
        return texts

    for other, permuted, parts, lists in run_store_ranks(run, 2, backend="gloo"):
        assert "rank 1 called all_gather at test_functional.py" in other
        assert "called permute at test_functional.py" in permuted
        assert "rank 1 sends 3 elements to rank 0, which expects 2" in parts
        assert "called all_to_all_list at" in lists
        assert "hint: all arrays of all ranks must have one shape" in lists


def test_what_no_array_shows_is_compared_too() -> None:
    def run(rank: int) -> list[str]:
        square = of(rank, 2, 2)
        texts = []
        for op in (
            lambda: F.permute(square, [0, 1] if rank else [1, 0]),
            lambda: F.permute(of(rank, *((3, 2) if rank else (2, 3))), [1, 0]),
            lambda: F.permute(square, [1, 0]) if rank else F.all_to_all(square, [0, 2], [0, 2]),
            lambda: F.all_gather(square, rank),
        ):
            with pytest.raises(dist.MismatchError) as caught:
                op()
            texts.append(caught.value.what.partition(": ")[2])
        assert F.permute(of(rank, *(() if rank else (1,))), [1, 0]).shape == (() if rank else (1,))
        return texts

    expected = [
        "dst [1,0] on rank 0, dst [0,1] on rank 1",
        "float32[2,3] on rank 0, float32[3,2] on rank 1",
        "all_to_all on rank 0, permute on rank 1",
        "gather_dim 0 on rank 0, gather_dim 1 on rank 1",
    ]
    assert run_store_ranks(run, 2, backend="gloo") == [expected] * 2


def test_a_result_that_is_dropped_is_told_as_such() -> None:
    def run(rank: int) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            F.all_reduce(of(rank, 2), async_op=True)
            gc.collect()
            return [str(each.message) for each in caught]

    (texts,) = run_store_ranks(run, 1, backend="gloo")
    assert len(texts) == 1
    assert "the Result of all_reduce on group 'world' was dropped" in texts[0]
    assert "hint: keep the Result and call wait() on it" in texts[0]


def test_the_module_is_an_attribute_of_the_package() -> None:
    assert dist.functional is F
    assert all(getattr(F, name) is not None for name in F.__all__)


def test_a_rank_may_use_the_form_in_place() -> None:
    def run(rank: int) -> list[float]:
        x = of(rank, 2)
        if rank:
            dist.all_reduce(x)
            return x.tolist()
        found: Floats = F.all_reduce(x)
        return found.tolist()

    assert run_store_ranks(run, 2, backend="gloo") == [[100, 102]] * 2
