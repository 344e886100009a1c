"""A process that the kernel kills for memory, in a cgroup made for it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.launch.ended import EndedChild
from distdbg.launch.memory import OomWatch, find_counter, read_kills
from distdbg.launch.warden import Warden

LIMIT_NBYTES = 64 << 20
PATIENCE_S = 120.0
#: Waits for a line, then fills memory or waits on.
PROGRAM = """
import sys
if sys.stdin.readline() == "eat\\n":
    blocks = []
    while True:
        blocks.append(bytearray(b"x" * (4 << 20)))
sys.stdin.read()
"""


@pytest.fixture
def small_cgroup(make_cgroup: Callable[[int], Path]) -> Path:
    return make_cgroup(LIMIT_NBYTES)


def start(warden: Warden, watch: OomWatch, cgroup: Path, name: str) -> None:
    pid = warden.spawn(name, [sys.executable, "-c", PROGRAM], os.environ, stdin="pipe")
    (cgroup / "cgroup.procs").write_text(str(pid))
    watch.add(name, pid)


def say(warden: Warden, name: str, line: bytes) -> None:
    with open(warden.take_stdin(name), "wb") as pipe:
        pipe.write(line)
        pipe.flush()


def wait_end(warden: Warden) -> EndedChild:
    deadline = time.monotonic() + PATIENCE_S
    while not (ends := warden.events(1.0)):
        assert time.monotonic() < deadline
    [ended] = ends
    assert ended.signal == signal.SIGKILL
    return ended


@pytest.mark.slow
def test_running_out_of_memory_is_told_from_a_kill(small_cgroup: Path) -> None:
    with Warden.start() as warden:
        watch = OomWatch()
        for name in ("hog", "bystander", "second hog"):
            start(warden, watch, small_cgroup, name)
        say(warden, "hog", b"eat\n")
        ended = wait_end(warden)
        assert ended.name == "hog"
        assert ended.max_rss_nbytes > LIMIT_NBYTES // 2
        assert watch.find_victims([ended], time.monotonic_ns()) == {"hog"}
        # The count stays where it is; a person's kill does not raise it.
        assert warden.signal("bystander", signal.SIGKILL)
        ended = wait_end(warden)
        assert watch.find_victims([ended], time.monotonic_ns()) == frozenset()
        say(warden, "second hog", b"eat\n")
        assert watch.find_victims([wait_end(warden)], time.monotonic_ns()) == {"second hog"}


def test_this_process_has_a_count_that_can_be_read() -> None:
    path = find_counter(os.getpid())
    assert path is not None
    if not path.exists():
        pytest.skip("this kernel does not count kills for memory")
    assert read_kills(path) is not None
    assert find_counter(2**22 + 1) is None


def test_a_kill_outside_any_small_cgroup_is_no_kill_for_memory() -> None:
    with Warden.start() as warden:
        watch = OomWatch()
        watch.add("rank 0", warden.spawn("rank 0", ["sleep", "300"], os.environ))
        assert warden.signal("rank 0", signal.SIGKILL)
        assert watch.find_victims([wait_end(warden)], time.monotonic_ns()) == frozenset()
