"""A thread that sleeps in a backward pass is told from one that computes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from distdbg.torch_bridge.tap import waits_inside as module
from distdbg.torch_bridge.tap.waits_inside import WaitsInside, cpu_time_ns, state_of


def around(passes: WaitsInside, function: Callable[..., Any]) -> Callable[..., Any]:
    return passes.around(function, lambda: None)


def test_what_is_known_better_is_raised_in_place_of_an_error() -> None:
    passes, better = WaitsInside(), [ValueError("a peer has died"), None]

    def fail() -> None:
        raise RuntimeError("connection closed")

    with pytest.raises(ValueError, match="died") as caught:
        passes.around(fail, lambda: better[0])()
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError, match="closed"):
        passes.around(fail, lambda: better[1])()
    assert not passes._inside


def test_no_pass_is_not_blocked() -> None:
    assert not WaitsInside().blocked_thread()


def test_a_pass_that_sleeps_is_blocked_after_a_while() -> None:
    passes, end, inside = WaitsInside(), threading.Event(), threading.Event()

    def sleep() -> None:
        inside.set()
        end.wait()

    thread = threading.Thread(target=around(passes, sleep))
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


def test_a_thread_that_comes_later_is_not_taken_for_the_one_that_sleeps() -> None:
    passes, ends = WaitsInside(), [threading.Event(), threading.Event()]

    def sleep(end: threading.Event, inside: threading.Event) -> None:
        inside.set()
        end.wait()

    threads, twice = [], around(passes, around(passes, sleep))
    for end in ends:
        threads.append(threading.Thread(target=twice, args=(end, inside := threading.Event())))
        threads[-1].start()
        inside.wait()
        deadline = time.monotonic() + 20 * module._STILL_S
        while not passes.blocked_thread():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    first, second = threads
    assert passes.blocked_thread() == first.native_id
    ends[0].set()  # before the one that came after it
    first.join()
    deadline = time.monotonic() + 20 * module._STILL_S
    while passes.blocked_thread() != second.native_id:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ends[1].set()
    second.join()
    assert not passes.blocked_thread()
    # One that has just come in has slept for no while.
    assert not around(passes, passes.blocked_thread)()
    assert not passes._inside


def test_a_thread_that_is_gone_is_not_seen() -> None:
    assert cpu_time_ns(2**22 + 1) is None
    assert state_of(2**22 + 1) == ""


def test_the_clock_of_a_thread_is_its_cpu_time() -> None:
    before_ns = time.thread_time_ns()
    seen_ns = cpu_time_ns(threading.get_native_id())
    assert seen_ns is not None
    assert before_ns <= seen_ns <= time.thread_time_ns()
