"""What keeps a process asleep: holders of file locks, and children that died."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distdbg.agent.blockers import dead_child, lock_holder, read_locks

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
