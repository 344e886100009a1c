"""What keeps a process asleep: holders of file locks, and children that died."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distdbg.agent.blockers import (
    _children,
    are_children_locked,
    awaited_child,
    dead_child,
    lock_holder,
    read_locks,
)
from distdbg.follow.processes import read_main_thread
from distdbg.record.observations import UNREAD

LOCKS = """\
1: FLOCK  ADVISORY  WRITE 812 fe:00:4711 0 EOF
1: -> FLOCK  ADVISORY  WRITE 815 fe:00:4711 0 EOF
1:  -> FLOCK  ADVISORY  WRITE 816 fe:00:4711 0 EOF
2: OFDLCK ADVISORY  WRITE -1 fe:00:99 0 EOF
2: -> OFDLCK ADVISORY  WRITE 817 fe:00:99 0 EOF
31: POSIX  ADVISORY  READ 815 fe:00:12 0 EOF
"""


@pytest.mark.parametrize(
    ("pid", "holder"),
    [
        pytest.param(815, 812, id="first in the queue"),
        pytest.param(816, 812, id="behind it"),
        pytest.param(817, 0, id="of an open file"),
        pytest.param(812, 0, id="the holder itself"),
        pytest.param(99, 0, id="another process"),
    ],
)
def test_the_holder_is_the_process_without_an_arrow(pid: int, holder: int) -> None:
    assert lock_holder(LOCKS, pid) == holder


def test_what_is_no_table_of_locks_names_nobody() -> None:
    assert lock_holder("", 1) == 0
    assert lock_holder("1:\n1: ->\nx y z\n\n", 1) == 0


def test_the_kernel_lists_a_lock_that_is_held(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert f" {os.getpid()} " in read_locks()


@pytest.fixture
def child() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Forks a child that nobody waits for until the test has ended."""
    pids: list[int] = []

    def start(act: Callable[[], object]) -> int:
        pid = os.fork()
        if not pid:
            try:
                act()
            finally:
                os._exit(9)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        os.waitpid(pid, 0)


def test_a_child_that_was_killed_or_failed_is_named(
    child: Callable[[Callable[[], object]], int],
) -> None:
    assert dead_child(os.getpid()) == ""
    child(lambda: os._exit(0))
    assert dead_child(os.getpid()) == ""
    pid = child(lambda: os._exit(3))
    assert dead_child(os.getpid()).startswith(f"{pid} (")
    assert dead_child(os.getpid()).endswith(") exited with code 3")
    pid = child(lambda: os.kill(os.getpid(), signal.SIGKILL))
    found = dead_child(os.getpid())
    assert found.startswith(f"{pid} (")
    assert found.endswith(") was killed by SIGKILL")


def test_a_process_that_is_gone_has_none() -> None:
    assert dead_child(2**30) == ""


@pytest.mark.parametrize(
    ("does", "reported"),
    [
        ("yes", UNREAD),
        ("cat", "waits for input from a pipe"),
        ("exec sleep 60", "sleeps (hrtimer_nanosleep)"),
        ("kill -STOP $$", "is stopped"),
    ],
)
def test_a_child_that_lives_is_told_with_what_keeps_it(does: str, reported: str) -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen(['sh', '-c', sys.argv[1]], stdin=-1, stdout=-1, stderr=-3).wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code, does]) as rank:
        try:
            deadline = time.monotonic() + 30
            while reported not in (found := awaited_child(rank.pid)):
                assert time.monotonic() < deadline, found
                time.sleep(0.01)  # until the child has come there
            assert f"), which {reported}" in found
        finally:
            for pid in _children(rank.pid):
                os.kill(pid, signal.SIGKILL)
            rank.kill()
    assert awaited_child(rank.pid) == ""


def test_output_that_the_child_shares_with_the_rank_is_no_pipe_between_them() -> None:
    code = "import subprocess; subprocess.run(['yes'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as rank:
        try:
            deadline = time.monotonic() + 30
            while "full pipe" not in (found := awaited_child(rank.pid)):
                assert UNREAD not in found
                assert time.monotonic() < deadline, found
                time.sleep(0.01)  # until the pipe is full, which this test does not read
            assert found.endswith(" (yes), which writes to a full pipe")
        finally:
            for pid in _children(rank.pid):
                os.kill(pid, signal.SIGKILL)
            rank.kill()


_WORKERS = """
import multiprocessing, sys, threading, time
lock = threading.Lock()
def work(number):
    with lock:
        pass
lock.acquire()
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(work, range(2 if sys.argv[1] == "all" else 1), chunksize=1)
"""


def _in_locks(pid: int) -> int:
    """How many of the two workers wait for a lock, once the other one reads its pipe."""
    threads = [read_main_thread(child) for child in _children(pid)]
    locked = [one for one in threads if one is not None and one.is_futex]
    idle = [one for one in threads if one is not None and one.wchan.endswith("pipe_read")]
    return len(locked) if len(locked) + len(idle) == 2 else 0


@pytest.mark.parametrize("which", ["all", "one"])
def test_workers_that_all_wait_for_a_lock_are_told_from_idle_ones(which: str) -> None:
    with subprocess.Popen([sys.executable, "-c", _WORKERS, which]) as rank:
        try:
            deadline = time.monotonic() + 30
            while _in_locks(rank.pid) != (2 if which == "all" else 1):
                assert time.monotonic() < deadline
                time.sleep(0.01)  # until the workers have come there
            assert are_children_locked(rank.pid) is (which == "all")
            assert are_children_locked(os.getpid()) is False
        finally:
            for pid in _children(rank.pid):
                os.kill(pid, signal.SIGKILL)
            rank.kill()
    assert are_children_locked(rank.pid) is False
