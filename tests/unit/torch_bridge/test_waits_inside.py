"""A thread that sleeps in a backward pass is told from one that computes."""

from __future__ import annotations

import threading
import time

from distdbg.torch_bridge.tap import waits_inside as module
from distdbg.torch_bridge.tap.waits_inside import WaitsInside, cpu_time_ns, state_of


def test_no_pass_is_not_blocked() -> None:
    assert not WaitsInside().blocked_thread()


def test_a_pass_that_sleeps_is_blocked_after_a_while() -> None:
    passes, end, inside = WaitsInside(), threading.Event(), threading.Event()

    def sleep() -> None:
        with passes:
            inside.set()
            end.wait()

    thread = threading.Thread(target=sleep)
    thread.start()
    inside.wait()
    assert not passes.blocked_thread()
    deadline = time.monotonic() + 20 * module._STILL_S
    while passes.blocked_thread() != thread.native_id:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    end.set()
    thread.join()
    assert not passes.blocked_thread()


def test_a_thread_that_is_gone_is_not_seen() -> None:
    assert cpu_time_ns(2**22 + 1) is None
    assert state_of(2**22 + 1) == ""


def test_the_clock_of_a_thread_is_its_cpu_time() -> None:
    before_ns = time.thread_time_ns()
    seen_ns = cpu_time_ns(threading.get_native_id())
    assert seen_ns is not None
    assert before_ns <= seen_ns <= time.thread_time_ns()
