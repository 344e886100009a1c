"""However the launcher ends, nothing that it started outlives it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import distdbg
from distdbg.launch.descendants import read_process
from tests.support.leftovers import (
    JobMark,
    Traces,
    find_leftovers,
    find_marked,
    new_mark,
    take_traces,
)

PROGRAM = Path(__file__).with_name("launcher_program.py")
#: A child that had to end by itself would be there for 300 s.
PATIENCE_S = 120.0
#: All is running after so long, on a quiet machine; it is ended at so many moments before.
STARTED_S = 0.25
MOMENTS = 20
#: Launcher, warden, and at least one process for each kind of child.
AT_LEAST = 16


@dataclass
class Launcher:
    process: subprocess.Popen[bytes]
    warden_pid: int
    before: Traces
    terminal: int

    def command(self, pid: int) -> str:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def environ(mark: JobMark) -> dict[str, str]:
    package = str(Path(distdbg.__file__).parents[1])
    return {**os.environ, **mark.environment, "PYTHONPATH": package}


@contextmanager
def launched(**extra: str) -> Iterator[Launcher]:
    before = take_traces(new_mark())
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), os.ttyname(slave)],
        env={**environ(before.mark), **extra},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(slave)
    assert process.stdout is not None
    try:
        word, pid = process.stdout.readline().split()
        assert word == b"ready"
        assert len(find_marked(before.mark)) >= AT_LEAST
        yield Launcher(process, int(pid), before, master)
    finally:
        for pid in find_marked(before.mark):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
        os.close(master)


def kill(signum: int) -> Callable[[Launcher], None]:
    return lambda launcher: os.kill(launcher.process.pid, signum)


def press_ctrl_c(launcher: Launcher) -> None:
    os.write(launcher.terminal, b"\x03")


def close_terminal(launcher: Launcher) -> None:
    # The descriptor stays ours, so that it is closed once; the terminal goes.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, launcher.terminal)
    os.close(null)


WAYS: dict[str, Callable[[Launcher], None]] = {
    "ctrl-c": press_ctrl_c,
    "SIGTERM": kill(signal.SIGTERM),
    "SIGHUP": kill(signal.SIGHUP),
    "SIGKILL": kill(signal.SIGKILL),
    "SIGSEGV": kill(signal.SIGSEGV),
    "terminal closed": close_terminal,
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_process_is_gone_after_the_launcher(way: str) -> None:
    with launched() as launcher:
        WAYS[way](launcher)
        assert find_leftovers(launcher.before, PATIENCE_S) == []


def test_a_launcher_that_is_stopped_and_then_killed_leaves_nothing() -> None:
    with launched() as launcher:
        os.kill(launcher.process.pid, signal.SIGSTOP)
        os.kill(launcher.process.pid, signal.SIGKILL)
        assert find_leftovers(launcher.before, PATIENCE_S) == []


def test_a_warden_that_is_stopped_while_its_launcher_is_killed_leaves_nothing() -> None:
    with launched() as launcher:
        os.kill(launcher.warden_pid, signal.SIGSTOP)
        os.kill(launcher.process.pid, signal.SIGKILL)
        assert find_leftovers(launcher.before, PATIENCE_S) == []


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
def test_a_launcher_whose_warden_is_killed_ends_all_that_it_had_started(signum: int) -> None:
    with launched() as launcher:
        os.kill(launcher.warden_pid, signum)
        deadline = time.monotonic() + PATIENCE_S
        while set(find_marked(launcher.before.mark)) - {launcher.process.pid}:
            assert time.monotonic() < deadline, find_marked(launcher.before.mark)
            time.sleep(0.02)  # nothing announces the end of processes that are not ours
        assert launcher.process.stdout is not None
        assert launcher.process.stdout.readline() == b"lost\n"


def test_a_child_that_may_linger_tidies_up_after_a_killed_launcher(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with launched(LINGERING_FILE=str(file)) as launcher:
        assert file.exists()
        kill(signal.SIGKILL)(launcher)
        assert find_leftovers(launcher.before, PATIENCE_S) == []
        assert not file.exists()


def test_the_warden_does_not_hear_the_signals_that_end_a_job_politely() -> None:
    with launched() as launcher:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(launcher.warden_pid, signum)
        kill(signal.SIGTERM)(launcher)
        assert find_leftovers(launcher.before, PATIENCE_S) == []


def test_the_warden_does_not_look_like_the_program_it_watches() -> None:
    with launched() as launcher:
        assert PROGRAM.name in launcher.command(launcher.process.pid)
        command = launcher.command(launcher.warden_pid)
        assert command.strip() == f"distdbg-warden of {launcher.process.pid}"
        # As `pkill -9 -f` with the name of the program does.
        for pid, command in find_marked(launcher.before.mark).items():
            if PROGRAM.name in command:
                os.kill(pid, signal.SIGKILL)
        assert find_leftovers(launcher.before, PATIENCE_S) == []


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["launcher", "warden"])
def test_a_kill_at_any_moment_of_the_start_leaves_nothing(victim: str) -> None:
    for moment in range(MOMENTS):
        before = take_traces(new_mark())
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env=environ(before.mark),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            time.sleep(STARTED_S * moment / MOMENTS)  # it is the moment that is tried
            if victim == "launcher":
                process.kill()
            else:
                for pid in find_marked(before.mark):
                    found = read_process(pid)
                    if found is not None and found.parent == process.pid:
                        os.kill(pid, signal.SIGKILL)
                        process.wait(PATIENCE_S)
            process.kill()
            process.wait()
            assert find_leftovers(before, PATIENCE_S) == []
        finally:
            for pid in find_marked(before.mark):
                os.kill(pid, signal.SIGKILL)
