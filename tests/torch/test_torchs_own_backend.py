"""A registered maker that returns torch's ProcessGroupGloo, as it gets its store and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distdbg as dist

torch: Any = pytest.importorskip("torch")
td: Any = pytest.importorskip("torch.distributed")


@pytest.fixture
def backend() -> Iterator[str]:
    dist.Backend.register_backend("torchs", td.ProcessGroupGloo)
    yield "torchs"
    dist.Backend.unregister_backend("torchs")


def test_every_op_works_on_tensors_and_on_arrays(backend: str) -> None:
    def program() -> list[Any]:
        group, rank = dist.new_group(backend=backend), dist.get_rank()
        mine = torch.full((2,), float(rank + 1))
        largest = mine.clone()
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        from_0 = mine.clone()
        dist.broadcast(from_0, 0, group=group)
        blocks = [torch.zeros(2) for _ in range(2)]
        dist.all_gather(blocks, mine, group=group)
        both = torch.zeros(4)
        dist.all_gather_into_tensor(both, mine, group=group)
        part = torch.zeros(2)
        dist.reduce_scatter_tensor(part, both, group=group)
        swapped = torch.zeros(2)
        dist.all_to_all_single(swapped, mine, group=group)
        total = mine.clone()
        dist.reduce(total, 0, group=group)
        scattered = torch.zeros(2)
        dist.scatter(scattered, blocks if rank == 0 else None, 0, group=group)
        if rank:
            dist.send(mine, 0, group=group)
        else:
            dist.recv(total, 1, group=group)
        array = np.ones(3)
        work = dist.all_reduce(array, group=group, async_op=True)
        work.wait()
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, {"rank": rank}, group=group)
        dist.barrier(group)
        dist.all_reduce(array, dist.make_premul_sum(0.5), group=group)
        values = [largest, from_0, blocks[1], both, part, swapped, scattered]
        return [*(value.tolist() for value in values), array.tolist(), objects]

    first, second = dist.run_threads(program, 2, timeout_s=60)
    assert first[:4] == second[:4] == [[2, 2], [1, 1], [2, 2], [1, 1, 2, 2]]
    assert (first[4:7], second[4:7]) == ([[2, 2], [1, 2], [1, 1]], [[4, 4], [1, 2], [2, 2]])
    assert first[7:] == second[7:] == [[2, 2, 2], [{"rank": 0}, {"rank": 1}]]


def test_the_store_of_a_maker_is_one_of_torchs_and_one_of_ours(backend: str) -> None:
    made = []

    def make(store: Any, rank: int, size: int, timeout: Any) -> Any:
        made.append((isinstance(store, td.Store), isinstance(store, dist.Store)))
        return td.ProcessGroupGloo(td.PrefixStore("p", store), rank, size, timeout)

    dist.Backend.register_backend("prefixed", make)
    try:

        def program() -> float:
            group = dist.new_group(backend="prefixed")
            array = np.ones(1)
            dist.all_reduce(array, group=group)
            return float(array[0])

        assert dist.run_threads(program, 2, timeout_s=60) == [2.0, 2.0]
    finally:
        dist.Backend.unregister_backend("prefixed")
    assert made == [(True, True)] * 2
