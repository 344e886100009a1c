"""A backend that is not ours gets our check: what is found, what is left alone, and what hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import (
    CollectiveError,
    DistBackendError,
    DistError,
    MismatchError,
    OpTimeout,
    PeerLost,
)
from distdbg.runtime.backends.checked.checked_engine import DETAIL, INFO, OFF, CheckedEngine
from tests.support import in_memory
from tests.support.store_ranks import limit_ops, run_store_ranks


@pytest.fixture(autouse=True)
def backends() -> Iterator[None]:
    with in_memory.registered():
        yield


def run(
    function: Callable[[int], Any], size: int, backend: str = "together", **options: Any
) -> list[Any]:
    return run_store_ranks(function, size, backend=backend, **options)


def caught(function: Callable[[], object]) -> DistError:
    with pytest.raises(DistError) as info:
        function()
    return info.value


def engine_of(group: Any) -> Any:
    """The engine under those that record and log."""
    engine = group.engine
    while hasattr(engine, "inner"):
        engine = engine.inner
    return engine


def set_level(level: int) -> None:
    engine = engine_of(dist.group.WORLD)
    assert isinstance(engine, CheckedEngine)
    engine.set_level(level)


ARRAY = np.zeros(4, np.float32)


def wrong(name: str, rank: int) -> Callable[[], object]:
    """One rank calls something else; returns what this one calls."""
    is_odd = rank == 1
    x = np.zeros(4, np.float32)
    blocks = [np.zeros(4, np.float32) for _ in range(3)]
    match name:
        case "shape":
            return lambda: dist.all_reduce(np.zeros(3 if is_odd else 4, np.float32))
        case "ndim":
            return lambda: dist.all_reduce(x.reshape(2, 2) if is_odd else x)
        case "dtype":
            return lambda: dist.all_reduce(x.astype(np.int32) if is_odd else x)
        case "kind":
            return (lambda: dist.broadcast(x, 0)) if is_odd else (lambda: dist.all_reduce(x))
        case "barrier":
            return dist.barrier if is_odd else (lambda: dist.all_reduce(x))
        case "op":
            op = dist.ReduceOp.MAX if is_odd else dist.ReduceOp.SUM
            return lambda: dist.all_reduce(x, op)
        case "root":
            return lambda: dist.broadcast(x, 1 if is_odd else 0)
        case "reduce_dst":
            return lambda: dist.reduce(x, 1 if is_odd else 0)
        case "gather_dst":
            dst = 1 if is_odd else 0
            return lambda: dist.gather(x, blocks if rank == dst else None, dst)
        case "order":
            y = np.zeros((2, 3), np.float32)
            return lambda: dist.all_reduce(np.zeros((3, 2), np.float32).T if is_odd else y)
        case "a2a_dtype":
            dtype = np.int32 if is_odd else np.float32
            return lambda: dist.all_to_all_single(np.zeros(3, dtype), np.zeros(3, dtype))
        case "a2a_splits":
            give = [1, 1, 2] if is_odd else [1, 1, 1]
            return lambda: dist.all_to_all_single(np.zeros(3), np.zeros(sum(give)), [1, 1, 1], give)
    raise AssertionError(name)


WRONG = [
    "shape",
    "ndim",
    "dtype",
    "kind",
    "barrier",
    "op",
    "root",
    "reduce_dst",
    "gather_dst",
    "order",
    "a2a_dtype",
    "a2a_splits",
]


@pytest.mark.parametrize("name", WRONG)
def test_a_mismatch_is_told_alike_on_every_rank_and_leaves_the_group_usable(name: str) -> None:
    def rank_main(rank: int) -> tuple[str, list[int], str]:
        error = caught(wrong(name, rank))
        assert isinstance(error, MismatchError)
        x = np.ones(1)
        dist.all_reduce(x)  # nothing was sent, so the backend is in step
        return error.what, error.ranks, "\n".join(error.details)

    results = run(rank_main, 3)
    assert len({what for what, _, _ in results}) == 1, results
    what, ranks, details = results[0]
    assert "#1 on group 'world' differs between ranks" in what
    assert ranks == ([1, 2] if name == "a2a_splits" else [1])
    assert "test_checked_engine.py:" in details
    assert [made.started for made in in_memory.Together.made] == [["allreduce"]] * 3


def test_what_differs_is_named() -> None:
    def rank_main(rank: int) -> tuple[str, str]:
        return caught(wrong("order", rank)).what, caught(wrong("op", rank)).what

    order, op = run(rank_main, 3)[0]
    assert "row-major on ranks 0,2, memory order [1, 0] on rank 1" in order
    assert "op MAX" in op


@pytest.mark.parametrize("size", [2, 4])
def test_legal_programs_pass(size: int) -> None:
    def rank_main(rank: int) -> None:
        n = dist.get_world_size()
        for level in (DETAIL, INFO, OFF, DETAIL):
            set_level(level)
            x = np.ones(2)
            dist.all_reduce(x)
            works = [dist.all_reduce(np.ones(3), async_op=True) for _ in range(5)]
            dist.broadcast(x, 1)
            for work in reversed(works):
                assert work is not None
                assert work.wait()
                assert work.is_completed()
            counts = [r + 1 for r in range(n)]
            uneven = np.zeros(sum(counts))
            dist.all_to_all_single(
                uneven, np.full(n * (rank + 1), float(rank)), counts, [rank + 1] * n
            )
            assert uneven.tolist() == [float(r) for r in range(n) for _ in range(r + 1)]
            objects: list[Any] = [None] * n
            dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
            assert [each["rank"] for each in objects] == list(range(n))
            dist.barrier()
        future = dist.all_reduce(np.ones(2), async_op=True).get_future()
        assert future.wait()

    run(rank_main, size)


def test_ranks_may_change_the_level_at_different_ops() -> None:
    def rank_main(rank: int) -> None:
        for step in range(12):
            set_level((step // (rank + 1)) % 3)
            dist.all_reduce(np.ones(2))
            dist.broadcast(np.ones(2), step % 2)

    run(rank_main, 3)


def test_async_ops_on_two_groups_may_be_crossed() -> None:
    def rank_main(rank: int) -> None:
        groups = [dist.new_group(), dist.new_group()]
        order = groups if rank != 1 else groups[::-1]
        works = [dist.all_reduce(np.ones(4), group=group, async_op=True) for group in order]
        for work in works:
            assert work is not None
            assert work.wait()

    run(rank_main, 3)


def test_an_async_op_is_not_made_synchronous() -> None:
    called = threading.Event()

    def rank_main(rank: int) -> None:
        x = np.ones(1)
        if rank == 0:
            work = dist.all_reduce(x, async_op=True)
            assert work is not None
            assert not work.is_completed()
            error = caught(lambda: work.wait(timedelta(seconds=0.05)))
            assert isinstance(error, OpTimeout)
            assert error.missing == [1]
            assert "the op continues" in str(error)
            called.set()
            assert work.wait()
        else:
            called.wait(120)
            dist.all_reduce(x)

    run(rank_main, 2)


def test_an_async_mismatch_is_raised_by_wait() -> None:
    def rank_main(rank: int) -> None:
        work = dist.all_reduce(np.ones(2 + rank), async_op=True)
        after = dist.all_reduce(np.ones(2), async_op=True)
        assert work is not None
        assert after is not None
        assert isinstance(caught(work.wait), MismatchError)
        assert isinstance(work.exception(), MismatchError)
        assert after.wait()

    run(rank_main, 2)


@pytest.mark.parametrize("is_async", [False, True])
def test_at_info_the_op_starts_at_once_and_a_mismatch_ends_the_group(is_async: bool) -> None:
    def rank_main(rank: int) -> None:
        set_level(INFO)
        # Different ops: the backend would wait for ever.
        if rank == 0:
            error = caught(lambda: op(lambda a: dist.broadcast(np.ones(2), 1, async_op=a)))
        else:
            error = caught(lambda: op(lambda a: dist.all_reduce(np.ones(2), async_op=a)))
        assert isinstance(error, MismatchError), error
        assert "level INFO" in str(error)
        assert "still usable" not in str(error)
        later = caught(dist.barrier)
        assert isinstance(later, CollectiveError)
        assert "differs between ranks" in str(later)

    def op(start: Callable[[bool], Any]) -> None:
        work = start(is_async)
        if work is not None:
            work.wait()

    run(rank_main, 3)
    assert all(made.started for made in in_memory.Together.made)
    assert all("abort" in made.events for made in in_memory.Together.made)


def test_at_info_a_root_does_not_wait_for_the_others() -> None:
    has_sent = threading.Event()

    def rank_main(rank: int) -> None:
        set_level(INFO)
        x = np.full(2, float(rank))
        if rank == 0:
            dist.broadcast(x, 0)
            has_sent.set()
        else:
            assert has_sent.wait(120)
            dist.broadcast(x, 0)
        assert x.tolist() == [0, 0]

    run(rank_main, 2)


def test_a_late_rank_is_named_though_the_backend_would_not() -> None:
    is_over = threading.Event()
    both = threading.Barrier(2)

    def rank_main(rank: int) -> None:
        if rank == 2:
            is_over.wait(120)
            return
        both.wait(60)
        error = caught(lambda: dist.barrier(dist.group.WORLD, timeout=1.0))
        is_over.set()
        assert isinstance(error, OpTimeout)
        assert error.missing == [2]
        assert error.arrived == [0, 1]

    run(rank_main, 3)
    assert not any(made.started for made in in_memory.Together.made)


def test_a_rank_that_leaves_is_told_at_once() -> None:
    def rank_main(rank: int) -> float:
        if rank == 1:
            dist.destroy_process_group()
            return 0.0
        started = time.monotonic()
        error = caught(dist.barrier)
        assert isinstance(error, PeerLost)
        assert error.peer == 1
        return time.monotonic() - started

    assert max(run(rank_main, 3, timeout_s=60)) < 30


def test_a_rank_may_leave_when_it_has_done_its_part() -> None:
    has_left = threading.Event()

    def rank_main(rank: int) -> None:
        set_level(INFO)
        x = np.full(2, float(rank))
        work = dist.broadcast(x, 0, async_op=True)
        assert work is not None
        if rank == 0:
            work.wait()
        else:
            assert work.wait()
        if rank == 0:
            dist.destroy_process_group()
            has_left.set()
        assert x.tolist() == [0, 0]

    run(rank_main, 2)


@pytest.mark.parametrize("backend", ["together", "bound"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.slow
def test_a_backend_that_hangs_does_not_keep_the_caller(backend: str, is_async: bool) -> None:
    in_memory.Together.hangs[1] = "allreduce"

    def rank_main(rank: int) -> None:
        limit_ops(0.5)

        def op() -> None:
            work = dist.all_reduce(np.ones(2), async_op=is_async)
            if work is not None:
                work.wait()

        error = caught(op)
        assert isinstance(error, (OpTimeout, CollectiveError))
        assert "all_reduce #1" in error.what
        assert "cannot run" in caught(dist.barrier).what

    started = time.monotonic()
    run(rank_main, 2, backend)
    assert time.monotonic() - started < 30  # the backend itself hangs for 60 s
    assert all("abort" in made.events for made in in_memory.Together.made)


def test_what_a_backend_raises_is_a_backend_error_of_the_op() -> None:
    in_memory.Together.raises.update({0: "allreduce", 1: "allreduce"})

    def rank_main(rank: int) -> None:
        error = caught(lambda: dist.all_reduce(np.ones(2)))
        assert isinstance(error, DistBackendError)
        assert "allreduce is broken here" in str(error)
        dist.barrier()

    run(rank_main, 2)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_op_that_a_backend_refuses_because_a_rank_leaves_names_that_rank(
    monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """`is_first`: the backend notices it before this rank has heard of it."""
    is_issued, has_left = threading.Event(), threading.Event()
    real = in_memory.Together._start

    def start(made: Any, name: str, *args: Any) -> Any:
        if made.rank != 0:
            return real(made, name, *args)
        is_issued.set()
        assert has_left.wait(30)
        raise RuntimeError("connection closed")

    monkeypatch.setattr(in_memory.Together, "_start", start)

    def rank_main(rank: int) -> None:
        set_level(INFO)
        if rank == 1:
            assert is_issued.wait(30)
            if is_first:
                has_left.set()
            dist.destroy_process_group()
            has_left.set()
            return
        error = caught(lambda: dist.all_reduce(np.ones(2), async_op=True))
        assert isinstance(error, PeerLost), repr(error)
        assert error.peer == 1

    run(rank_main, 2)


def test_a_bound_backend_is_called_on_the_thread_of_the_caller() -> None:
    def rank_main(rank: int) -> None:
        x = np.ones(1)
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        assert work is not None
        work.wait()
        error = caught(lambda: dist.all_reduce(np.ones(1 + rank)))
        assert isinstance(error, MismatchError)

    run(rank_main, 2, "bound")
    assert in_memory.Bound.threads == {"rank 0", "rank 1"}


def test_a_backend_that_reads_strides_may_get_any_order_of_memory() -> None:
    def rank_main(rank: int) -> None:
        x = np.ones((2, 3)) if rank else np.ones((3, 2)).T
        dist.all_reduce(x)

    run(rank_main, 2, "striding")


def test_gaps_between_elements_are_no_difference() -> None:
    def rank_main(rank: int) -> None:
        dist.all_reduce(np.ones(3) if rank else np.ones(6)[::2])

    run(rank_main, 2)


def test_groups_of_some_ranks_are_checked_too() -> None:
    def rank_main(rank: int) -> None:
        group = dist.new_group([0, 2], backend="together")
        if rank == 1:
            return
        error = caught(lambda: dist.all_reduce(np.ones(2 + rank), group=group))
        assert isinstance(error, MismatchError)
        assert "rank 0" in error.what
        assert "rank 2" in error.what
        dist.destroy_process_group(group)

    run(rank_main, 3)


def test_the_backend_is_shut_down_and_no_thread_stays() -> None:
    def rank_main(rank: int) -> None:
        dist.all_reduce(np.ones(1))
        work = dist.all_reduce(np.ones(1), async_op=True)
        assert work is not None
        work.wait()

    before = threading.active_count()
    run(rank_main, 2)
    assert [made.events for made in in_memory.Together.made] == [["shutdown"]] * 2
    assert threading.active_count() == before


def test_abort_reaches_the_backend_and_the_other_ranks() -> None:
    is_waiting = threading.Event()

    def rank_main(rank: int) -> None:
        pg = dist.group.WORLD
        assert pg is not None
        if rank == 0:
            is_waiting.wait(120)
            pg.abort()
        else:
            is_waiting.set()
            error = caught(dist.barrier)
            assert isinstance(error, CollectiveError)
            assert "called abort()" in str(error)

    run(rank_main, 2)
    assert "abort" in in_memory.Together.made[0].events


def test_unwrapped_means_no_check_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_UNWRAPPED", "1")

    def rank_main(rank: int) -> None:
        assert not isinstance(engine_of(dist.group.WORLD), CheckedEngine)
        dist.all_reduce(np.ones(2 + rank))  # wrong, and nobody minds

    run(rank_main, 2)
