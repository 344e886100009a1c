"""Work, futures, and the thread that completes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.control.clock import FREE_CLOCK
from distdbg.debugger.breaker import BreakingPending
from distdbg.errors import CollectiveError, OpTimeout, UsageError
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import await_end
from distdbg.runtime.backends.staging import StagedPending
from distdbg.runtime.backends.tracing import TracedPending
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.handles.future import Future
from distdbg.runtime.handles.watcher import CompletionWatcher
from distdbg.runtime.handles.work import NO_DEADLINE, ManyPending, Work, WorkResult
from distdbg.runtime.process.world import World, use


class ManualPending:
    """An op that ends when the test says so."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: CollectiveError | None = None

    def done(self) -> bool:
        return self.ended.is_set()

    def wait(self, deadline_ns: int) -> None:
        if not self.ended.wait(0.01 if deadline_ns < 2**62 else 10):
            raise OpTimeout("not yet")
        if self.error is not None:
            raise self.error

    def source_rank(self) -> int:
        return 3

    def end(self, error: CollectiveError | None = None) -> None:
        self.error = error
        self.ended.set()


def make_work(kind: Kind = Kind.ALL_REDUCE) -> tuple[Work, ManualPending]:
    group = ProcessGroup(0, 1)
    pending = ManualPending()
    x = np.ones(1)
    return Work(group, Call(kind, (x,), (x,)), pending), pending


def test_a_work_in_flight_knows_nothing_yet() -> None:
    work, pending = make_work()
    assert not work.is_completed()
    assert not work.is_success()
    assert work.exception() is None
    with pytest.raises(UsageError, match="before the op has ended"):
        work.result()
    with pytest.raises(OpTimeout):
        work.wait(timedelta(seconds=0.01))
    pending.end()
    assert work.wait()  # the wait that expired left the op going
    assert work.is_success()
    assert work.result()[0].tolist() == [1.0]
    assert work.wait(timedelta(seconds=30))
    work.synchronize()
    work.block_current_stream()
    assert Work.unbox(work.boxed()) is work


@pytest.mark.parametrize("wrong", ["5", [1], float("nan")])
def test_a_wait_refuses_what_is_no_length(wrong: Any) -> None:
    work, pending = make_work()
    with pytest.raises(UsageError, match="timeout must be a timedelta or seconds"):
        work.wait(wrong)
    pending.end()
    assert work.wait()


def test_a_failed_work_raises_each_time_and_tells_its_error() -> None:
    work, pending = make_work()
    error = CollectiveError("broken", kind="all_reduce")
    pending.end(error)
    for _ in range(2):
        with pytest.raises(CollectiveError, match="broken"):
            work.wait()
    assert work.exception() is error
    assert work.is_completed()
    assert not work.is_success()


def test_source_rank_is_of_a_recv() -> None:
    work, pending = make_work(Kind.RECV)
    with pytest.raises(UsageError, match="before the recv"):
        work.source_rank()
    pending.end()
    assert work.source_rank() == 3
    with pytest.raises(UsageError, match="recv only"):
        make_work()[0].source_rank()


def test_callbacks_run_on_another_thread_without_anyone_waiting() -> None:
    with use(World()) as world:
        work, pending = make_work()
        threads: list[threading.Thread] = []
        called = threading.Event()

        def callback(future: Future[list[object]]) -> None:
            threads.append(threading.current_thread())
            called.set()

        future = work.get_future()
        assert work.get_future() is future
        future.add_done_callback(callback)
        after = future.then(lambda done: done.value()[0] + 1)
        assert not future.done()
        pending.end()
        assert called.wait(120)
        assert threads[0] is not threading.current_thread()
        assert after.wait().tolist() == [2.0]
        assert world.watcher is not None
        world.watcher.close()


def test_a_future_is_complete_when_the_wait_has_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompletionWatcher, "watch", lambda *_: None)  # it comes too late
    with use(World()) as world:
        called: list[object] = []
        work, pending = make_work()
        future = work.get_future()
        future.add_done_callback(lambda _: called.append("first"))
        future.add_done_callback(lambda _: called.append("second"))
        pending.end()
        work.wait()
        assert future.done()
        assert future.value()[0].tolist() == [1.0]
        assert called == ["first", "second"]

        failing, pending = make_work()
        future = failing.get_future()
        pending.end(CollectiveError("broken"))
        with pytest.raises(CollectiveError, match="broken"):
            failing.wait()
        assert future.done()

        over, pending = make_work()
        pending.end()
        over.wait()
        assert over.get_future().done()
        assert world.watcher is not None
        world.watcher.close()


class LookedAtPending(ManualPending):
    """An op whose wait would make an error of much, with a look beside it that makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = threading.Event()

    def await_end(self, deadline_ns: int) -> None:
        self.looked.set()
        self.ended.wait(10)

    def wait(self, deadline_ns: int) -> None:
        raise AssertionError("nobody asked what became of it")


def test_the_thread_that_looks_for_ends_makes_no_errors_of_its_looks() -> None:
    watcher, noticed = CompletionWatcher(FREE_CLOCK), threading.Event()
    pending = LookedAtPending()
    watcher.watch(pending, noticed.set)
    assert pending.looked.wait(10)
    assert not noticed.is_set()
    pending.end()
    assert noticed.wait(10)
    watcher.close()


NOBODY: Any = None  # is asked in these
AROUND: dict[str, Callable[[Any], Any]] = {
    "several": lambda pending: ManyPending([pending, pending]),
    "staged": lambda pending: StagedPending(pending, NOBODY),
    "stopped at": lambda pending: BreakingPending(pending, NOBODY, NOBODY),
    "traced": lambda pending: TracedPending(pending, NOBODY),
}


@pytest.mark.parametrize("around", AROUND)
def test_a_look_at_an_op_makes_no_error_through_what_is_around_it(around: str) -> None:
    pending = LookedAtPending()
    pending.end()
    await_end(AROUND[around](pending), NO_DEADLINE)
    assert pending.looked.is_set()


def late_to_come(other_may_come: threading.Event) -> float:
    x = np.ones(2)
    if dist.get_rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        await_end(work.pending, 0)  # its deadline has passed, and nothing is raised
        assert not work.pending.done()
        other_may_come.set()
        await_end(work.pending, NO_DEADLINE)
        assert work.pending.done()
        work.wait()
    else:
        assert other_may_come.wait(10)
        dist.all_reduce(x)
    return float(x.sum())


def test_a_look_at_an_op_that_goes_on_raises_nothing() -> None:
    assert dist.run_threads(late_to_come, 2, threading.Event()) == [4.0, 4.0]


def test_a_future_carries_the_ops_error_and_its_result_code() -> None:
    with use(World()) as world:
        for error, code in (
            (None, WorkResult.SUCCESS),
            (OpTimeout("late"), WorkResult.TIMEOUT),
            (CollectiveError("broken"), WorkResult.COMM_ERROR),
        ):
            work, pending = make_work()
            result = work.get_future_result()
            pending.end(error)
            assert result.wait() == code
            if error is not None:
                with pytest.raises(type(error)):
                    work.get_future().wait()
        assert world.watcher is not None
        world.watcher.close()


def test_destroy_completes_the_futures_of_ops_that_never_ended() -> None:
    with use(World()) as world:
        work, _ = make_work()
        future = work.get_future()
        assert world.watcher is not None
        world.watcher.close()
        with pytest.raises(UsageError, match="destroyed"):
            future.wait()
        late, _ = make_work()
        with pytest.raises(UsageError, match="destroyed"):
            late.get_future().wait()


def test_many_ops_end_together_and_the_first_error_is_raised() -> None:
    parts = [ManualPending(), ManualPending()]
    many = ManyPending(parts)
    parts[1].end(CollectiveError("second"))
    assert not many.done()
    parts[0].end(CollectiveError("first"))
    assert many.done()
    with pytest.raises(CollectiveError, match="first"):
        many.wait(2**63 - 1)
    assert ManyPending([]).done()


def test_a_future_is_set_once() -> None:
    future: Future[int] = Future()
    with pytest.raises(UsageError, match="before the future is complete"):
        future.value()
    future.set_result(4)
    assert future.done()
    assert future.wait() == future.value() == 4
    with pytest.raises(UsageError, match="already complete"):
        future.set_exception(ValueError())


def test_then_carries_on_what_the_callback_raises(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()
    after = future.then(lambda done: 1 // done.value())
    future.add_done_callback(lambda done: 1 // done.value())  # logged and dropped
    future.set_result(0)
    with pytest.raises(ZeroDivisionError):
        after.wait()
    assert "a callback of a Future raised" in caplog.text
    failed: Future[int] = Future()
    failed.set_exception(KeyError("k"))
    with pytest.raises(KeyError):
        failed.then(lambda done: done.value()).wait()
    with pytest.raises(UsageError, match="not an exception"):
        Future[int]().set_exception(3)  # type: ignore[arg-type]
