"""Whatever a process or py-spy does, stacks are there by the deadline, or why they are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distdbg.agent import take_stacks as taking
from distdbg.agent.take_stacks import SampledProcess, take_stacks
from distdbg.follow.processes import read_stat
from distdbg.follow.stacks import RankStacks

#: The deadline is less than a second away, and what would be waited for otherwise a minute.
LIMIT_S = 0.9
SOON_S = 30.0
StartTarget = Callable[[], SampledProcess]


@pytest.fixture
def start_target(tmp_path: Path) -> Iterator[StartTarget]:
    sleepers: list[subprocess.Popen[bytes]] = []

    def start() -> SampledProcess:
        sleepers.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return SampledProcess(len(sleepers) - 1, sleepers[-1].pid, 0, tmp_path)

    yield start
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()


@pytest.fixture
def hanging_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    monkeypatch.setattr(taking, "find_py_spy", lambda: str(program))


def take(targets: list[SampledProcess], limit_s: float = LIMIT_S) -> tuple[list[RankStacks], float]:
    began = time.monotonic()
    found = take_stacks(targets, time.monotonic_ns() + int(limit_s * 1e9), native=False)
    return found, time.monotonic() - began


@pytest.mark.usefixtures("hanging_py_spy")
def test_a_py_spy_that_hangs_is_waited_for_until_the_deadline(start_target: StartTarget) -> None:
    (found,), seconds = take([start_target()])
    assert seconds < SOON_S
    assert not found.threads
    assert found.why_not.startswith("py-spy: took more than 0.")


@pytest.mark.usefixtures("hanging_py_spy")
def test_ranks_for_which_no_time_is_left_are_said_so(start_target: StartTarget) -> None:
    found, seconds = take([start_target() for _ in range(6)])
    assert seconds < SOON_S
    assert [one.rank for one in found] == list(range(6))
    assert found[-1].why_not == "no time was left for it"


def test_a_stopped_process_is_not_waited_for_without_py_spy(
    start_target: StartTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_STACKS", "faulthandler")
    target = start_target()
    os.kill(target.pid, signal.SIGSTOP)
    while (stat := read_stat(target.pid)) is not None and stat.state != "T":
        pass  # it is a matter of microseconds
    (found,), seconds = take([target], 60.0)
    assert seconds < SOON_S
    assert found.why_not == "DISTDBG_STACKS=faulthandler; it is stopped, so it answers no signal"
