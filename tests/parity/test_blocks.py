"""Collectives that cut an array into a block for each rank, or put such blocks together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise


@promise("`all_gather` collects the arrays of all ranks in a list, by rank")
def test_all_gather() -> None:
    def run(rank: int) -> list[list[int]]:
        blocks = [np.zeros(2, np.int64) for _ in range(2)]
        dist.all_gather(blocks, np.arange(2) + 1 + 2 * rank)
        return [block.tolist() for block in blocks]

    assert on_ranks(run) == [[[1, 2], [3, 4]]] * 2


@promise("`all_gather` takes complex numbers")
def test_all_gather_of_complex_numbers() -> None:
    def run(rank: int) -> list[list[complex]]:
        blocks = [np.zeros(1, np.complex64) for _ in range(2)]
        dist.all_gather(blocks, np.full(1, 1 + rank + 1j, np.complex64))
        return [block.tolist() for block in blocks]

    assert on_ranks(run) == [[[1 + 1j], [2 + 1j]]] * 2


@promise(
    "`all_gather` takes arrays of different sizes on different ranks",
    here="more",
    note="torch's gloo refuses them",
)
def test_all_gather_of_different_sizes() -> None:
    def run(rank: int) -> list[list[float]]:
        blocks = [np.zeros(1), np.zeros(2)]
        dist.all_gather(blocks, np.full(1 + rank, float(rank + 1)))
        return [block.tolist() for block in blocks]

    assert on_ranks(run) == [[[1.0], [2.0, 2.0]]] * 2


@promise("The list of `all_gather` has one array for each rank")
def test_all_gather_into_too_few() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="all_gather"):
            dist.all_gather([np.zeros(1)], np.zeros(1))

    on_ranks(run)


@promise("`all_gather_into_tensor` puts the arrays one after the other along the first dimension")
def test_all_gather_concatenated() -> None:
    def run(rank: int) -> list[int]:
        out = np.zeros(4, np.int64)
        dist.all_gather_into_tensor(out, np.arange(2) + 2 * rank)
        return out.tolist()

    assert on_ranks(run) == [[0, 1, 2, 3]] * 2


@promise("`all_gather_into_tensor` stacks them where the output has one more dimension")
def test_all_gather_stacked() -> None:
    def run(rank: int) -> list[list[int]]:
        out = np.zeros((2, 2), np.int64)
        dist.all_gather_into_tensor(out, np.arange(2) + 2 * rank)
        return out.tolist()

    assert on_ranks(run) == [[[0, 1], [2, 3]]] * 2


@promise("`all_gather_into_tensor` refuses an output that is not as large as all inputs")
def test_all_gather_into_a_wrong_size() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="all_gather_into_tensor"):
            dist.all_gather_into_tensor(np.zeros(3), np.zeros(2))

    on_ranks(run)


@promise("`all_gather_coalesced` gathers several arrays at once")
def test_all_gather_coalesced() -> None:
    def run(rank: int) -> list[list[float]]:
        table = [[np.zeros(1), np.zeros(2)] for _ in range(2)]
        dist.all_gather_coalesced(table, [np.full(1, rank + 1.0), np.full(2, rank + 5.0)])
        return [np.concatenate(row).tolist() for row in table]

    assert on_ranks(run) == [[[1.0, 5.0, 5.0], [2.0, 6.0, 6.0]]] * 2


@promise("`gather` collects the arrays of all ranks in the list of `dst`; 0 if none is given")
@pytest.mark.parametrize("dst", [None, 1])
def test_gather(dst: int | None) -> None:
    def run(rank: int) -> list[float] | None:
        blocks = [np.zeros(1), np.zeros(1)] if rank == (dst or 0) else None
        dist.gather(np.full(1, rank + 1.0), blocks, dst)
        return blocks and [float(block[0]) for block in blocks]

    results = on_ranks(run)
    assert results[dst or 0] == [1.0, 2.0]
    assert results[1 - (dst or 0)] is None


@promise("`gather_list` is given on `dst` and nowhere else")
def test_gather_list() -> None:
    def run(rank: int) -> None:
        blocks = [np.zeros(1), np.zeros(1)] if rank == 1 else None
        with pytest.raises(ValueError, match="gather_list"):
            dist.gather(np.zeros(1), blocks, 0)

    on_ranks(run)


@promise("`scatter` gives each rank its array of the list of `src`; 0 if none is given")
@pytest.mark.parametrize("src", [None, 1])
def test_scatter(src: int | None) -> None:
    def run(rank: int) -> float:
        blocks = [np.full(1, 1.0), np.full(1, 5.0)] if rank == (src or 0) else None
        out = np.zeros(1)
        dist.scatter(out, blocks, src)
        return float(out[0])

    assert on_ranks(run) == [1.0, 5.0]


@promise("`scatter_list` is given on `src` and nowhere else")
def test_scatter_list() -> None:
    def run(rank: int) -> None:
        blocks = [np.zeros(1), np.zeros(1)] if rank == 1 else None
        with pytest.raises(ValueError, match="scatter_list"):
            dist.scatter(np.zeros(1), blocks, 0)

    on_ranks(run)


@promise("`gather` and `scatter` take `group_dst` and `group_src`, ranks of the group")
def test_group_roots() -> None:
    def run(rank: int) -> list[float]:
        group = dist.new_group([1, 2])
        if rank == 0:
            return []
        is_root = rank == 2
        blocks = [np.zeros(1), np.zeros(1)]
        dist.gather(np.full(1, float(rank)), blocks if is_root else None, group=group, group_dst=1)
        out = np.zeros(1)
        dist.scatter(out, blocks if is_root else None, group=group, group_src=1)
        return out.tolist()

    assert on_ranks(run, 3) == [[], [1.0], [2.0]]


@promise("`reduce_scatter` reduces the lists of all ranks and gives each rank its array")
def test_reduce_scatter() -> None:
    def run(rank: int) -> float:
        out = np.zeros(1)
        dist.reduce_scatter(out, [np.full(1, 1.0 + rank), np.full(1, 10.0 + rank)])
        return float(out[0])

    assert on_ranks(run) == [3.0, 21.0]


@promise("`reduce_scatter_tensor` reduces an array and gives each rank its block of it")
def test_reduce_scatter_concatenated() -> None:
    def run(rank: int) -> list[int]:
        out = np.zeros(2, np.int64)
        dist.reduce_scatter_tensor(out, np.arange(4))
        return out.tolist()

    assert on_ranks(run) == [[0, 2], [4, 6]]


@promise("`reduce_scatter_tensor` takes a stack with one row for each rank as well")
def test_reduce_scatter_stacked() -> None:
    def run(rank: int) -> list[int]:
        out = np.zeros(2, np.int64)
        dist.reduce_scatter_tensor(out, np.arange(4).reshape(2, 2))
        return out.tolist()

    assert on_ranks(run) == [[0, 2], [4, 6]]


@promise("`all_to_all_single` sends block r of the input to rank r")
def test_all_to_all_single() -> None:
    def run(rank: int) -> list[int]:
        out = np.zeros(4, np.int64)
        dist.all_to_all_single(out, np.arange(4) + 4 * rank)
        return out.tolist()

    assert on_ranks(run) == [[0, 1, 4, 5], [2, 3, 6, 7]]


@promise("`all_to_all_single` takes sizes of the blocks, which differ by rank")
def test_all_to_all_single_with_sizes() -> None:
    def run(rank: int) -> list[int]:
        out = np.zeros(3, np.int64)
        sends = [1, 2] if rank == 0 else [2, 1]
        receives = [1, 2] if rank == 0 else [2, 1]
        dist.all_to_all_single(out, np.arange(3) + 10 * rank, receives, sends)
        return out.tolist()

    assert on_ranks(run) == [[0, 10, 11], [1, 2, 12]]


@promise("`all_to_all_single` takes complex numbers")
def test_all_to_all_single_of_complex_numbers() -> None:
    def run(rank: int) -> list[complex]:
        out = np.zeros(2, np.complex128)
        dist.all_to_all_single(out, np.array([1 + 1j, 2 + 2j]) * (rank + 1))
        return out.tolist()

    assert on_ranks(run) == [[1 + 1j, 2 + 2j], [2 + 2j, 4 + 4j]]


@promise("`all_to_all_single` refuses sizes that do not add up to the array")
def test_all_to_all_single_with_wrong_sizes() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="all_to_all_single"):
            dist.all_to_all_single(np.zeros(3), np.zeros(3), [1, 1], [1, 2])

    on_ranks(run)


@promise("`all_to_all` sends array r of a list to rank r, and collects those of all ranks")
def test_all_to_all() -> None:
    def run(rank: int) -> list[Any]:
        outputs = [np.zeros(1, np.int64) for _ in range(2)]
        dist.all_to_all(outputs, [np.array([2 * rank]), np.array([2 * rank + 1])])
        return [block.tolist() for block in outputs]

    assert on_ranks(run) == [[[0], [2]], [[1], [3]]]


@promise("The arrays of `all_to_all` may have different sizes")
def test_all_to_all_of_different_sizes() -> None:
    def run(rank: int) -> list[int]:
        outputs = [np.zeros(1 + rank + source) for source in range(2)]
        dist.all_to_all(outputs, [np.ones(1 + rank + to) for to in range(2)])
        return [int(block.sum()) for block in outputs]

    assert on_ranks(run) == [[1, 2], [2, 3]]


@promise("`all_gather_single` and `reduce_scatter_single` are the newer names of two of these")
def test_newer_names() -> None:
    def run(rank: int) -> list[float]:
        out, part = np.zeros(2), np.zeros(1)
        dist.all_gather_single(out, np.full(1, float(rank)))
        dist.reduce_scatter_single(part, out)
        return [*out.tolist(), float(part[0])]

    assert on_ranks(run) == [[0.0, 1.0, 0.0], [0.0, 1.0, 2.0]]


@promise("The input of `all_gather_into_tensor` may be its own block of the output")
def test_all_gather_in_place() -> None:
    def run(rank: int) -> list[float]:
        out = np.zeros(2)
        out[rank] = rank + 1
        dist.all_gather_into_tensor(out, out[rank : rank + 1])
        return out.tolist()

    assert on_ranks(run) == [[1.0, 2.0]] * 2
