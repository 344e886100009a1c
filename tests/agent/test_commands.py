"""ps, stacks, pause, resume and stop, on a job that runs."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partialmethod
from typing import Any

import pytest

from distdbg.cli.main import main
from distdbg.client.live_runs import LiveRun

WAITS = "if rank == 1:\n    time.sleep(600)\ndist.all_reduce(x)\n"


@pytest.fixture
def job(start_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    found = start_job(WAITS)
    monkeypatch.setattr(tempfile, "tempdir", str(found.folder))
    with found.connect() as client:
        row = found.await_row(client, 0, lambda row: row["state"] == "waiting")
        assert row["state"] == "waiting"
    return found


def test_a_job_is_shown_paused_resumed_and_ended(
    job: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"run {job.run_folder.name} on ")
    assert lines[1].split()[:4] == ["rank", "host", "pid", "state"]
    # Whether the late rank comes first, marked, depends on whether the agent has looked yet.
    waiting = next(line for line in lines[2:] if "waiting" in line)
    assert "all_reduce #21 on group 'world', job.py:" in waiting
    assert main(["stacks", "--rank", "0", "--python"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("rank 0: MainThread\n")
    assert "job.py:" in out
    assert main(["pause"]) == 0
    assert main(["pause", job.run_folder.name]) == 0
    assert capsys.readouterr().err.splitlines()[1].endswith("was paused already")
    assert main(["ps", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["control"]["is_paused"]
    first, second = (row["state"] for row in run["ranks"])
    assert first == "waiting"
    assert second in ("running", "asleep")  # it is looked at closely a second after its last op
    assert main(["resume"]) == 0
    assert main(["stop"]) == 2  # it asks, and there is nobody to answer
    assert main(["stop", "--yes"]) == 0
    assert [process.wait(120) for process in job.processes] == [-15, -15]


def test_ranks_without_an_agent_are_shown_all_the_same(
    start_job: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = start_job(WAITS, DISTDBG_AGENT="0")
    monkeypatch.setattr(tempfile, "tempdir", str(job.folder))
    out = ""
    deadline = time.monotonic() + 120
    while out.count("job.py:") < 2 and time.monotonic() < deadline:
        main(["ps"])
        out = capsys.readouterr().out
        time.sleep(0.02)  # without an agent nobody says when ranks have begun
    assert "no agent answers" in out
    assert main(["stacks"]) == 2
    assert "no agent answers for run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_whose_agent_is_stopped_is_shown_by_its_records(
    job: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveRun, "connect", partialmethod(LiveRun.connect, 0.2))
    with job.connect() as client:
        agent = client.hello["pid"]
    os.kill(agent, signal.SIGSTOP)
    try:
        assert main(["ps"]) == 0
    finally:
        os.kill(agent, signal.SIGCONT)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("no agent answers")
    assert "all_reduce #21 on group 'world', job.py:" in lines[2]


@pytest.mark.slow
def test_one_run_is_shown_of_several(
    start_job: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = (start_job("time.sleep(600)\n", 1) for _ in range(2))
    names = []
    for job in (first, second):
        with job.connect() as client:
            names.append(client.hello["run"])
    # Jobs of these tests have a temporary folder each: this brings both into one.
    beside = first.sockets[0].with_name(second.sockets[0].name)
    os.link(second.sockets[0], beside)
    monkeypatch.setattr(tempfile, "tempdir", str(first.folder))
    try:
        assert main(["ps"]) == 0
        assert capsys.readouterr().out.count("run ") == 2
        assert main(["ps", names[1]]) == 0
        assert main(["ps", "else"]) == 2
    finally:
        beside.unlink()
    shown = capsys.readouterr()
    assert shown.out.startswith(f"run {names[1]} on ")
    assert names[0] not in shown.out
    assert "no running job 'else' on this host" in shown.err


def test_without_a_run_every_command_says_so(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["ps"]) == 0
    assert capsys.readouterr().err == "no running job of this user on this host\n"
    for words in (["stacks"], ["stop", "--yes"], ["pause"], ["resume", "x"]):
        assert main(words) == 2
        assert "no running job" in capsys.readouterr().err
    assert main(["stacks", "--rank", "3-1"]) == 2
    assert "write 0-3,7" in capsys.readouterr().err
