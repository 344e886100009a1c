"""An op of the CPU engine that ends while a wait gives up, and while several threads wait for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.errors import OpTimeout
from distdbg.native import NativeError
from distdbg.ops.call import Call, Kind
from distdbg.runtime.backends.pending import NO_DEADLINE, CpuPending


class EndsMeanwhile:
    """A handle that is seen to have ended when it is asked for the second time."""

    number = 0
    is_plain = False

    def __init__(self) -> None:
        self.asked = 0

    @property
    def done(self) -> bool:
        self.asked += 1
        return self.asked > 1


def test_a_wait_that_gives_up_as_the_op_ends_is_not_the_outcome_of_the_op() -> None:
    handle = EndsMeanwhile()
    waits = iter([NativeError("no time left"), None])

    def wait_op(of: Any, deadline_ns: int) -> str:
        error = next(waits)
        if error is not None:
            raise error
        return ""

    def fail(*arguments: Any) -> None:
        raise OpTimeout("this wait is over")

    engine: Any = SimpleNamespace(
        group=SimpleNamespace(wait_op=wait_op),
        fail=fail,
        compares_order=False,
        forget=lambda pending: None,
    )
    pending = CpuPending(engine, Call(Kind.BARRIER, (), ()), handle, (), 0)  # type: ignore[arg-type]

    with pytest.raises(OpTimeout):
        pending.wait(1)
    pending.wait(NO_DEADLINE)

    assert not pending.has_failed()


def pending_of(engine: Any, *views: Any) -> CpuPending:
    handle: Any = SimpleNamespace(number=0, done=True, is_plain=False)
    engine.compares_order = False
    engine.forget = lambda pending: None
    return CpuPending(engine, Call(Kind.BARRIER, (), ()), handle, views, 0)


def test_an_op_that_two_threads_wait_for_fails_once() -> None:
    both_know = threading.Barrier(2)
    asked = threading.local()
    made: list[OpTimeout] = []

    def wait_op(of: Any, deadline_ns: int) -> str:
        if not hasattr(asked, "once"):
            asked.once = True
            both_know.wait(10)
        raise NativeError("it failed")

    def fail(*arguments: Any) -> None:
        made.append(OpTimeout("it failed"))
        raise made[-1]

    engine: Any = SimpleNamespace(group=SimpleNamespace(wait_op=wait_op), fail=fail)
    pending = pending_of(engine)
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(pending.wait, NO_DEADLINE) for _ in range(2)]
        assert [wait.exception(10) for wait in waits] == made * 2

    assert len(made) == 1


def test_results_are_carried_back_once_and_before_any_wait_returns() -> None:
    both_know = threading.Barrier(2)
    carried: list[threading.Thread] = []

    def wait_op(of: Any, deadline_ns: int) -> str:
        both_know.wait(10)
        return ""

    both_carry = threading.Barrier(2)

    def carry() -> None:
        with suppress(threading.BrokenBarrierError):
            both_carry.wait(0.05)  # as long as it takes another thread to come this far
        carried.append(threading.current_thread())

    engine: Any = SimpleNamespace(group=SimpleNamespace(wait_op=wait_op))
    pending = pending_of(engine, SimpleNamespace(finish=carry))

    def wait() -> int:
        pending.wait(NO_DEADLINE)
        return len(carried)

    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(wait) for _ in range(2)]
        assert [each.result(10) for each in waits] == [1, 1]
