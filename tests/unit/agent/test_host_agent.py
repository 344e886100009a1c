"""The agent's loop: nobody who does not read, and no part that fails, holds it up."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.agent.host_agent import HostAgent

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[HostAgent]:
    agent = HostAgent(tmp_path, "run-a", "n01")
    yield agent
    agent.close()


def test_a_pager_that_has_stopped_reading_does_not_hold_up_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_fd, write_fd = os.pipe()
    try:
        nbytes = fcntl.fcntl(write_fd, fcntl.F_GETPIPE_SZ)
        os.write(write_fd, b"x" * nbytes)
        with open(write_fd, "w", closefd=False) as full:
            monkeypatch.setattr(sys, "stdout", full)
            who: Any = SimpleNamespace(has_launcher=True)
            HostAgent.print_lines(who, ["rank 3 is stopped"])  # would never return
            os.read(read_fd, nbytes)
            HostAgent.print_lines(who, ["rank 3 goes on"])
            assert os.read(read_fd, nbytes) == b"distdbg: rank 3 goes on\n"
    finally:
        os.close(read_fd)
        os.close(write_fd)


def test_a_diagnosis_that_fails_is_dropped_and_the_ranks_are_watched_all_the_same(
    agent: HostAgent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(agent.watch, "tick", fail)
    agent.tick(time.monotonic_ns())
    assert caplog.text.count("the job is no longer diagnosed") == 1


def test_a_diagnosis_that_fails_at_the_end_leaves_no_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: int) -> None:
        raise RuntimeError("no such rank")

    agent = HostAgent(tmp_path, "run-a", "n01")
    path = tmp_path / "agent.sock"
    agent.server.listen_unix(path)
    assert path.exists()
    monkeypatch.setattr(agent.watch, "finish", fail)
    agent.close()
    assert not path.exists()
    assert caplog.text.count("the job is not diagnosed at its end") == 1


def test_what_fails_at_its_end_takes_nothing_else_with_it(agent: HostAgent) -> None:
    came: list[int] = []

    def fail(_: Future[int]) -> None:
        raise RuntimeError("no room")

    agent.run_in_thread(lambda: 1, fail)
    agent.run_in_thread(lambda: 2, lambda done: came.append(done.result()))
    deadline = time.monotonic() + 120
    while not came and time.monotonic() < deadline:
        for key, mask in agent.selector.select(0.1):
            key.data(mask)
    assert came == [2]


def test_a_policy_that_cannot_be_read_is_said_where_the_job_is_started(tmp_path: Path) -> None:
    words = ["--folder", str(tmp_path), "--run", "run-a", "--host", "n01", "--orders"]
    environ = {"DISTDBG_ABORT_ON": "dedlock", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "distdbg.agent", *words],
        env=os.environ | environ,
        input="",  # a launcher that leaves at once
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(
        "distdbg run: the variable DISTDBG_ABORT_ON='dedlock' is not valid"
    )
    assert "no verdict aborts the job" in done.stdout
