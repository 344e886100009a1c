from __future__ import annotations

import queue
import threading
from dataclasses import replace
from multiprocessing import pool
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.find.stuck import advice_of_reason
from distdbg.follow.processes import MainThread
from distdbg.follow.stacks import RankStacks, StackFrame, ThreadStack
from distdbg.follow.stuck import Look, StuckJudgement, judge
from distdbg.record.observations import (
    LOCKED_CHILDREN,
    NO_OTHER_THREAD,
    STORE_KEY,
    UNREAD,
    threads_in,
)
from distdbg.record.rank_state import RankState

OWN = "/env/distdbg"
S = 10**9


def py(function: str = "step", line: int = 88, file: str = "/home/ada/train.py") -> StackFrame:
    return StackFrame(function, file, line)


def native(function: str) -> StackFrame:
    return StackFrame(function, "/lib/libc.so.6", 0, is_native=True)


def thread(
    *frames: StackFrame, gil: bool | None = False, active: bool | None = False
) -> ThreadStack:
    return ThreadStack(
        frames, name="MainThread", thread_id=1, holds_gil=gil, is_active=active, is_main=True
    )


def stacks(*threads: ThreadStack, how: str = "py-spy", has_native: bool = True) -> RankStacks:
    return RankStacks(rank=1, pid=1, threads=threads, has_native=has_native, how=how)


def look(
    at_s: float,
    *threads: ThreadStack,
    cpu_s: float = 0.0,
    letter: str = "S",
    wchan: str = "",
    syscall: int | None = None,
    has_timeout: bool = False,
    is_futex: bool = False,
    is_nap: bool = False,
    voluntary: int = 0,
    how: str = "py-spy",
    has_native: bool = True,
) -> Look:
    main = MainThread(
        state=letter,
        wchan=wchan,
        syscall=syscall,
        has_timeout=has_timeout,
        voluntary=voluntary,
        is_futex=is_futex,
        is_nap=is_nap,
    )
    taken = stacks(*threads, how=how, has_native=has_native) if threads else None
    return Look(int(at_s * S), letter, cpu_s, main, taken)


def judged(first: Look, second: Look) -> StuckJudgement:
    return judge(first, second, OWN)


def test_uninterruptible_in_both_looks_is_blocked() -> None:
    found = judged(look(0, letter="D"), look(1, letter="D", wchan="nfs_wait"))
    assert (found.state, found.why) == (RankState.BLOCKED_IO, "in the kernel at nfs_wait")


def test_uninterruptible_once_is_nothing() -> None:
    found = judged(look(0, letter="D"), look(1, thread(py()), cpu_s=1, letter="R"))
    assert found.state is RankState.RUNNING or found.state is RankState.BUSY


def test_one_native_call_under_the_gil_holds_it_whether_it_burns_or_sleeps() -> None:
    for cpu_s, letter in ((0.0, "S"), (1.0, "R")):
        at = thread(native("usleep"), py(), gil=True)
        found = judged(look(0, at), look(1, at, cpu_s=cpu_s, letter=letter))
        assert found.state is RankState.HOLDS_GIL
        assert found.why == "one call that does not return (usleep)"
        assert found.site == "train.py:88 (step)"


def test_a_python_loop_on_one_line_does_not_hold_the_gil() -> None:
    at = thread(py(), gil=True, active=True)
    found = judged(look(0, at), look(1, at, cpu_s=1, letter="R"))
    assert (found.state, found.site) == (RankState.BUSY, "train.py:88 (step)")


def test_burning_on_one_line_with_no_owner_of_the_gil_seen_is_unsure() -> None:
    seen, unseen = thread(py(), gil=True), thread(py(), gil=False)
    moved = thread(py(line=2), gil=False)
    cases = {
        (seen, unseen): True,
        (unseen, seen): True,
        (unseen, moved): False,
        (seen, seen): False,
    }
    for (before, now), is_unsure in cases.items():
        found = judged(look(0, before), look(1, now, cpu_s=1, letter="R"))
        assert found.is_unsure == is_unsure


def test_a_rank_whose_lines_change_is_busy() -> None:
    found = judged(look(0, thread(py(line=1), gil=True)), look(1, thread(py(line=2)), cpu_s=0.9))
    assert found.state is RankState.BUSY


def test_a_rank_that_gets_little_of_a_full_host_is_busy_all_the_same() -> None:
    first = look(0, thread(py(line=1), gil=True), letter="R")
    found = judged(first, look(1, thread(py(line=2), gil=True), cpu_s=0.1, letter="R"))
    assert found.state is RankState.BUSY


def test_a_long_computation_without_the_gil_is_work() -> None:
    at = thread(native("dgemm"), py(), gil=False, active=True)
    found = judged(look(0, at), look(1, at, cpu_s=1, letter="R"))
    assert (found.state, found.site) == (RankState.RUNNING, "train.py:88 (step)")


def test_another_thread_that_holds_the_gil_is_named() -> None:
    main = thread(native("futex"), py())
    other = ThreadStack(
        (native("spin"), py("prefetch", 7)), name="loader", thread_id=2, holds_gil=True
    )
    found = judged(look(0, main, other), look(1, main, other, cpu_s=1))
    assert found.state is RankState.HOLDS_GIL
    assert found.why == "thread loader: one call that does not return (spin)"
    assert found.site == "train.py:7 (prefetch)"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, "blocked on a lock"),
        (
            {"wchan": "locks_lock_inode_wait", "syscall": 73, "is_futex": False},
            "waiting for a file lock",
        ),
        ({"has_timeout": True}, "blocked on a lock with a time limit"),
    ],
)
def test_a_lock_is_a_sleep(facts: dict[str, Any], why: str) -> None:
    at = thread(native("lock"), py())
    facts = {"wchan": "futex_do_wait", "syscall": 202, "is_futex": True, **facts}
    found = judged(look(0, at, **facts), look(1, at, **facts))
    assert (found.state, found.why, found.site) == (RankState.ASLEEP, why, "train.py:88 (step)")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("wait", f"blocked on a lock, in wait() of threading.py{NO_OTHER_THREAD}"),
        ("acquire", "blocked on a lock"),
    ],
)
def test_a_lock_that_a_library_waits_for_is_not_one_of_the_program(function: str, why: str) -> None:
    at = thread(native("lock"), StackFrame(function, threading.__file__, 320), py())
    found = judged(look(0, at, wchan="futex_wait"), look(1, at, wchan="futex_wait"))
    assert (found.why, found.site) == (why, "train.py:88 (step)")


def test_the_call_of_the_program_is_named_and_that_no_thread_is_left_to_end_its_wait() -> None:
    waits = StackFrame("Condition.wait", threading.__file__, 320)
    at = thread(native("lock"), waits, StackFrame("Queue.get", queue.__file__, 171), py())
    other = ThreadStack((py("work"),), name="reader", thread_id=2)
    found = judged(look(0, at, wchan="futex_wait"), look(1, at, wchan="futex_wait"))
    assert found.why == f"blocked on a lock, in Queue.get() of queue.py{NO_OTHER_THREAD}"
    facts: dict[str, Any] = {"wchan": "futex_wait"}
    found = judged(look(0, at, other, **facts), look(1, at, other, **facts))
    assert NO_OTHER_THREAD not in found.why
    # A thread that waits for another one itself will not end it, if it waits without a limit.
    lines = Path(threading.__file__).read_text().split("\n")
    for text, is_alone in (("waiter.acquire()", True), ("waiter.acquire(True, timeout)", False)):
        line = next(number for number, one in enumerate(lines, 1) if one.strip().endswith(text))
        frames = (
            StackFrame("Condition.wait", threading.__file__, line),
            StackFrame("Queue.get", queue.__file__, 171),
            py("decode", 24),
        )
        decoder = ThreadStack(frames, name="decoder", thread_id=2)
        found = judged(look(0, at, decoder, **facts), look(1, at, decoder, **facts))
        assert (NO_OTHER_THREAD in found.why) is is_alone
        assert found.why.endswith(
            "; its thread 'decoder' is at train.py:24 (decode), in Queue.get() of queue.py"
        )
        assert threads_in(found.why) == [("'decoder'", "train.py:24 (decode)")]
        is_reported = advice_of_reason(found.why).startswith("none of its threads goes on")
        of_pool = found.why.replace("Queue.get() of queue.py", "Pool.map() of pool.py")
        assert "Pool never notices" in advice_of_reason(of_pool.partition(";")[0])
        assert is_reported is is_alone
    # A queue between processes waits for others than threads.
    at = thread(native("sem_wait"), StackFrame("Queue.get", "/usr/lib/python3.11/q.py", 1), py())
    assert NO_OTHER_THREAD not in judged(look(0, at, **facts), look(1, at, **facts)).why


def test_a_lock_that_is_tried_again_and_again_is_said_to_be() -> None:
    at = thread(native("lock"), py())
    facts: dict[str, Any] = {"wchan": "futex_do_wait", "syscall": 202, "is_futex": True}
    found = judged(look(0, at, **facts), look(1, at, voluntary=200, **facts))
    assert (found.state, found.why) == (
        RankState.ASLEEP,
        "blocked on a lock, tried again and again",
    )


def test_a_read_that_nobody_answers_is_a_sleep() -> None:
    at = thread(native("read"), py())
    found = judged(
        look(0, at, wchan="pipe_read", syscall=0), look(1, at, wchan="pipe_read", syscall=0)
    )
    assert (found.state, found.why) == (RankState.ASLEEP, "in a system call (pipe_read)")


def test_a_sleep_for_a_time_is_a_sleep_too() -> None:
    at = thread(native("clock_nanosleep"), py("save_checkpoint"))
    facts: dict[str, Any] = {"wchan": "hrtimer_nanosleep", "syscall": 230, "is_nap": True}
    found = judged(look(0, at, **facts), look(1, at, **facts))
    assert (found.state, found.site) == (RankState.ASLEEP, "train.py:88 (save_checkpoint)")
    assert found.why == "in time.sleep, or a wait with a time limit"
    found = judged(look(0, at, **facts), look(1, at, voluntary=20, **facts))
    assert (found.state, found.why) == (RankState.ASLEEP, "in a loop of short sleeps")


def test_who_uses_no_cpu_in_changing_calls_is_asleep() -> None:
    at = thread(native("poll"), py())
    found = judged(look(0, at, wchan="do_poll", syscall=7), look(1, at, wchan="ep_poll", syscall=8))
    assert (found.state, found.why) == (RankState.ASLEEP, "wakes up now and then")


def test_a_wait_in_our_own_code_is_a_wait() -> None:
    at = thread(native("futex"), py("wait", 5, f"{OWN}/runtime/handles/work.py"), py())
    found = judged(look(0, at), look(1, at))
    assert (found.state, found.site) == (RankState.WAITING, "train.py:88 (step)")


@pytest.mark.parametrize("file", [pool.__file__, queue.__file__])
def test_workers_that_all_wait_for_a_lock_are_told_where_their_results_are_waited_for(
    file: str,
) -> None:
    at = thread(native("lock"), StackFrame("Pool.map", file, 367), py())
    looks = [
        replace(look(at_s, at, wchan="futex_wait"), are_children_locked=True) for at_s in (0, 1)
    ]
    found = judged(*looks)
    assert (LOCKED_CHILDREN in found.why) == (file == pool.__file__)
    assert ("forked while a thread held that lock" in advice_of_reason(found.why)) == (
        file == pool.__file__
    )
    one = judged(replace(looks[0], are_children_locked=False), looks[1])
    assert LOCKED_CHILDREN not in one.why


@pytest.mark.parametrize(
    ("outer", "state"),
    [
        (py("Store.get", 9, f"{OWN}/runtime/store/base.py"), RankState.ASLEEP),
        (py("Store.add", 9, f"{OWN}/runtime/store/base.py"), RankState.WAITING),
        # Making a group waits in the store as well.
        (py("join", 9, f"{OWN}/runtime/rendezvous/join.py"), RankState.WAITING),
        (py("look_up", 9, "/job/cache.py"), RankState.ASLEEP),
    ],
)
def test_who_waits_in_the_store_for_a_key_sleeps_at_its_line(
    outer: StackFrame, state: RankState
) -> None:
    at = thread(native("futex"), py("get", 5, f"{OWN}/runtime/store/tcp.py"), outer, py())
    found = judged(look(0, at), look(1, at))
    assert found.state is state
    assert (found.why == STORE_KEY) == (state is RankState.ASLEEP)
    assert ("set that key" in advice_of_reason(found.why)) == (state is RankState.ASLEEP)


def test_faulthandler_tells_by_the_line_alone() -> None:
    def at(line: int) -> ThreadStack:
        return thread(py(line=line), gil=None, active=None)

    facts = {"how": "faulthandler", "has_native": False}
    same = judged(look(0, at(1), **facts), look(1, at(1), cpu_s=1, **facts))  # type: ignore[arg-type]
    assert same.state is RankState.HOLDS_GIL
    other = judged(look(0, at(1), **facts), look(1, at(2), cpu_s=1, **facts))  # type: ignore[arg-type]
    assert other.state is RankState.BUSY


def test_without_stacks_burning_is_all_that_is_known() -> None:
    assert judged(look(0), look(1, cpu_s=1)).state is RankState.BUSY
    assert judged(look(0), look(1)).state is RankState.ASLEEP


def test_collecting_garbage_is_work() -> None:
    main = thread(
        native("deduce_unreachable"), native("gc_collect_main"), py(), gil=True, active=True
    )
    found = judged(look(0, main, letter="R"), look(1, main, cpu_s=1, letter="R"))
    assert (found.state, found.why) == (RankState.RUNNING, "collects garbage")


def test_a_thread_of_the_program_beside_a_lock_is_named() -> None:
    def others(line: int, *, active: bool = False) -> tuple[ThreadStack, ...]:
        library = StackFrame("wait", threading.__file__, 320)
        return (
            thread(py("save", 21)),
            ThreadStack(
                (py("log", line), py("run", 5)), name="logger", thread_id=2, is_active=active
            ),
            ThreadStack((library, py("read", 9)), name="loader", thread_id=3, is_active=False),
        )

    lock = {"wchan": "futex_wait"}
    found = judged(look(0, *others(13), **lock), look(1, *others(13), **lock))
    assert (found.state, found.site) == (RankState.ASLEEP, "train.py:21 (save)")
    assert found.why == "blocked on a lock; its thread 'logger' is at train.py:13 (log)"
    moved = judged(look(0, *others(12), **lock), look(1, *others(13), **lock))
    assert moved.why == "blocked on a lock"
    busy = judged(look(0, *others(13), **lock), look(1, *others(13, active=True), **lock))
    assert busy.why == "blocked on a lock"


@pytest.mark.parametrize(
    ("holder", "why"),
    [("", "waiting for a file lock"), ("rank 3", "waiting for a file lock that rank 3 holds")],
)
def test_who_holds_the_file_lock_is_told_where_the_kernel_knows(holder: str, why: str) -> None:
    first, second = (look(at, thread(py()), wchan="flock_lock_inode_wait") for at in (0, 1))
    found = judged(first, replace(second, lock_holder=holder))
    assert (found.state, found.why) == (RankState.ASLEEP, why)


def test_a_child_that_died_is_told_of_a_rank_that_sleeps() -> None:
    first, second = (look(at, thread(py()), wchan="pipe_read") for at in (0, 1))
    found = judged(first, replace(second, dead_child="47 (loader) was killed by SIGSEGV"))
    assert found.why == (
        "in a system call (pipe_read); its child process 47 (loader) was killed by SIGSEGV"
    )


def test_the_end_of_a_child_that_is_waited_for_is_told_where_both_looks_see_it() -> None:
    child = f"47 (sort), which {UNREAD}"
    first, second = (
        replace(look(at, thread(py()), wchan="do_wait"), awaited_child=child) for at in (0, 1)
    )
    assert judged(first, second).why == f"waits for the end of its child process {child}"
    gone = judged(replace(first, awaited_child=""), second)
    assert gone.why == "in a system call (do_wait)"
    assert "communicate()" in advice_of_reason(judged(first, second).why)
    busy = "waits for the end of its child process 47 (sort), which runs"
    assert advice_of_reason(busy) == "see what that process waits for, or is still busy with"
