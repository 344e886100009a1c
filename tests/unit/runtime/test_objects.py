"""Python objects through groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import distdbg as dist
from distdbg.errors import UsageError
from tests.support.store_ranks import REFERENCE, run_store_ranks

RunRanks = Callable[..., list[Any]]


@pytest.fixture(params=[REFERENCE, "gloo"])
def run_ranks(request: pytest.FixtureRequest) -> RunRanks:
    """Ranks as threads, over the reference engine and over the CPU engine."""
    return partial(run_store_ranks, backend=request.param)


def thing(rank: int) -> dict[str, Any]:
    return {"rank": rank, "text": "x" * (100 * rank), "nested": [None, (rank, 2.5)]}


def test_all_gather_object(run_ranks: RunRanks) -> None:
    def run(rank: int) -> list[Any]:
        out: list[Any] = [None] * 3
        dist.all_gather_object(out, thing(rank))
        return out

    assert run_ranks(run, 3) == [[thing(rank) for rank in range(3)]] * 3


def test_gather_object_fills_the_roots_list_only(run_ranks: RunRanks) -> None:
    def run(rank: int) -> list[Any] | None:
        out: list[Any] | None = [None] * 3 if rank == 2 else None
        dist.gather_object(thing(rank), out, dst=2)
        return out

    results = run_ranks(run, 3)
    assert results == [None, None, [thing(rank) for rank in range(3)]]


def test_broadcast_object_list(run_ranks: RunRanks) -> None:
    def run(rank: int) -> list[Any]:
        objects = [thing(1), "two", 3] if rank == 1 else [None] * 3
        dist.broadcast_object_list(objects, src=1, device="cpu")
        return objects

    assert run_ranks(run, 3) == [[thing(1), "two", 3]] * 3


def test_scatter_object_list(run_ranks: RunRanks) -> None:
    def run(rank: int) -> Any:
        out = [None, "stays"]
        dist.scatter_object_list(out, [thing(r) for r in range(3)] if rank == 0 else None)
        assert out[1] == "stays"
        return out[0]

    assert run_ranks(run, 3) == [thing(rank) for rank in range(3)]


@pytest.mark.parametrize("use_batch", [False, True])
def test_send_and_recv_object_list(run_ranks: RunRanks, use_batch: bool) -> None:
    def run(rank: int) -> list[Any]:
        objects: list[Any] = [None, None]
        if rank == 0:
            dist.send_object_list([thing(2), None], 1, use_batch=use_batch)
        else:
            assert dist.recv_object_list(objects, 0, use_batch=use_batch) == 0
        return objects

    assert run_ranks(run, 2)[1] == [thing(2), None]


def test_recv_object_list_from_any_rank(run_ranks: RunRanks) -> None:
    def run(rank: int) -> int:
        objects: list[Any] = [None]
        if rank == 0:
            source = dist.recv_object_list(objects)
            assert objects == ["from 1"]
            return source
        dist.send_object_list(["from 1"], 0)
        return -1

    assert run_ranks(run, 2)[0] == 1


def test_lists_of_a_wrong_length_are_told_before_anything_is_sent(run_ranks: RunRanks) -> None:
    def run(rank: int) -> None:
        with pytest.raises(UsageError, match="2 places, got 1"):
            dist.all_gather_object([None], 1)
        with pytest.raises(UsageError, match="at least one"):
            dist.broadcast_object_list([], 0)
        with pytest.raises(UsageError, match="at least one"):
            dist.scatter_object_list([], [1, 2])
        if rank == 1:
            with pytest.raises(UsageError, match="not the root"):
                dist.gather_object(1, [None, None], dst=0)
        dist.barrier()

    run_ranks(run, 2)
