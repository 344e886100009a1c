"""Synchronous and asynchronous ops: Work, its futures, and time limits."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise


def reduced(x: np.ndarray[Any, Any], group: dist.ProcessGroup | None = None) -> dist.Work:
    """An all_reduce that is in flight."""
    work = dist.all_reduce(x, group=group, async_op=True)
    assert work is not None
    return work


@promise("A synchronous op returns `None`, and its result may be used at once")
def test_a_synchronous_op() -> None:
    def run(rank: int) -> float:
        x = np.ones(1)
        assert dist.all_reduce(x, async_op=False) is None
        return float(x[0])

    assert on_ranks(run) == [2.0, 2.0]


@promise("With `async_op=True` an op returns a `Work`; its result may be used after `wait`")
def test_an_asynchronous_op() -> None:
    def run(rank: int) -> float:
        x = np.full(1, float(rank))
        work = reduced(x)
        assert isinstance(work, dist.Work)
        assert work.wait() is True
        return float(x[0])

    assert on_ranks(run, 3) == [3.0] * 3


@promise("`is_completed` is false while the op goes on, and true when it has ended")
def test_is_completed() -> None:
    may_come = threading.Event()

    def run(rank: int) -> None:
        if rank == 1:
            may_come.wait(120)
        work = reduced(np.ones(1))
        if rank == 0:
            assert work.is_completed() is False
            may_come.set()
        work.wait()
        assert work.is_completed() is True

    on_ranks(run)


@promise("`is_success` and `exception` tell how an op has ended")
def test_is_success() -> None:
    def run(rank: int) -> None:
        work = reduced(np.ones(1))
        work.wait()
        assert work.is_success() is True
        assert work.exception() is None

    on_ranks(run)


@promise("An op that failed raises in `wait`; `exception` returns the error")
def test_a_failed_op() -> None:
    def run(rank: int) -> None:
        work = reduced(np.ones(1 + rank))
        with pytest.raises(RuntimeError) as caught:
            work.wait()
        assert type(work.exception()) is type(caught.value)
        assert work.is_completed() is True
        assert work.is_success() is False

    on_ranks(run)


@promise("`result` returns the outputs of an op that has ended")
def test_result() -> None:
    def run(rank: int) -> list[float]:
        work = reduced(np.ones(2))
        work.wait()
        return list(work.result()[0])

    assert on_ranks(run) == [[2.0, 2.0]] * 2


@promise("`synchronize` waits as `wait` does on the CPU")
def test_synchronize() -> None:
    def run(rank: int) -> float:
        x = np.ones(1)
        reduced(x).synchronize()
        return float(x[0])

    assert on_ranks(run) == [2.0, 2.0]


@promise("`wait(timeout)` raises when the op has not ended by then")
def test_wait_with_a_timeout() -> None:
    is_over = threading.Event()

    def run(rank: int) -> None:
        if rank == 1:
            is_over.wait(120)
        work = reduced(np.ones(1))
        if rank == 0:
            begin = time.monotonic()
            with pytest.raises(RuntimeError):
                work.wait(timedelta(milliseconds=30))
            assert time.monotonic() - begin >= 0.03
            is_over.set()
        work.wait()

    on_ranks(run)


@promise("`get_future` returns a future of the list of outputs")
def test_get_future() -> None:
    def run(rank: int) -> list[float]:
        future = reduced(np.ones(2)).get_future()
        return list(future.wait()[0])

    assert on_ranks(run) == [[2.0, 2.0]] * 2


@promise("`then` of a future runs a function on the result, and returns a future of what it gives")
def test_then() -> None:
    def run(rank: int) -> float:
        future = reduced(np.ones(1)).get_future()
        half = future.then(lambda done: float(done.value()[0][0]) / 2)
        return half.wait()  # type: ignore[no-any-return]

    assert on_ranks(run) == [1.0, 1.0]


@promise("`done` of a future is true when the op has ended; `value` is its result")
def test_done_and_value() -> None:
    def run(rank: int) -> float:
        work = reduced(np.ones(1))
        future = work.get_future()
        work.wait()
        assert future.done() is True
        return float(future.value()[0][0])

    assert on_ranks(run) == [2.0, 2.0]


@promise("`add_done_callback` of a future calls a function when the op has ended")
def test_add_done_callback() -> None:
    def run(rank: int) -> bool:
        called = threading.Event()
        reduced(np.ones(1)).get_future().add_done_callback(lambda _: called.set())
        return called.wait(120)

    assert on_ranks(run) == [True, True]


@promise("The future of an op that failed raises its error")
def test_the_future_of_a_failed_op() -> None:
    def run(rank: int) -> None:
        future = reduced(np.ones(1 + rank)).get_future()
        with pytest.raises(RuntimeError, match="all_reduce"):
            future.wait()

    on_ranks(run)


@promise(
    "`get_future_result` is a future of a `WorkResult`", here="more", note="torch's needs NCCL's"
)
def test_get_future_result() -> None:
    def run(rank: int) -> int:
        return int(reduced(np.ones(1)).get_future_result().wait())

    assert on_ranks(run) == [0, 0]


@promise(
    "Ops of one group may be in flight together",
    here="more",
    note="they end in the order in which they were started",
)
def test_ops_keep_their_order() -> None:
    def run(rank: int) -> float:
        x, y = np.ones(1000), np.ones(1)
        first, second = reduced(x), reduced(y)
        second.wait()
        assert first.is_completed()
        return float(x[0] + y[0])

    assert on_ranks(run) == [4.0, 4.0]


@promise("The documentation's example: an `all_reduce` on both ranks, waited for, then used")
def test_the_example() -> None:
    def run(rank: int) -> float:
        output = np.array([float(rank)])
        handle = dist.all_reduce(output, async_op=True)
        assert handle is not None
        handle.wait()
        output += 100
        return float(output[0])

    assert on_ranks(run) == [101.0, 101.0]


@promise("An op that does not end within the group's timeout raises")
def test_the_timeout_of_a_group() -> None:
    def run(rank: int) -> None:
        if rank == 0:
            assert dist.group.WORLD is not None
            dist.group.WORLD.set_timeout(timedelta(milliseconds=50))
            with pytest.raises(RuntimeError, match="rank 1"):
                reduced(np.ones(1)).wait()

    on_ranks(run)


@promise(
    "The timeout of an op is that of its group",
    here="more",
    note="`timeout=` of a call limits that op alone",
)
def test_the_timeout_of_an_op() -> None:
    def run(rank: int) -> None:
        if rank == 0:
            with pytest.raises(RuntimeError, match="rank 1"):
                dist.all_reduce(np.ones(1), timeout=timedelta(milliseconds=50))

    on_ranks(run)


@promise("A block of coalesced ops starts them at its end, and is waited for as one")
def test_coalescing() -> None:
    def run(rank: int) -> list[float]:
        x = np.ones((3, 1))
        with dist._coalescing_manager(async_ops=True) as block:
            for row in x:
                dist.all_reduce(row)
            assert x.sum() == 3
        block.wait()
        return x[:, 0].tolist()  # type: ignore[no-any-return]

    assert on_ranks(run) == [[2.0] * 3] * 2


@promise("A block of coalesced ops holds ops of one kind")
def test_coalescing_of_two_kinds() -> None:
    def two_kinds() -> None:
        with dist._coalescing_manager():
            dist.all_reduce(np.ones(1))
            dist.broadcast(np.ones(1), 0)

    def run(rank: int) -> None:
        with pytest.raises(RuntimeError, match="one kind"):
            two_kinds()

    on_ranks(run)
