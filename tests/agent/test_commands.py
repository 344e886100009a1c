"""ps, stacks, pause, resume and stop, on a job that runs."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pytest

from distdbg.cli.main import main

WAITS = "if rank == 1:\n    time.sleep(60)\ndist.all_reduce(x)\n"


@pytest.fixture
def job(start_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    found = start_job(WAITS)
    monkeypatch.setattr(tempfile, "tempdir", str(found.folder))
    with found.connect() as client:
        row = found.await_row(client, 0, lambda row: row["state"] == "waiting", 10)
        assert row["state"] == "waiting"
    return found


def test_a_job_is_shown_paused_resumed_and_ended(
    job: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"run {job.run_folder.name} on ")
    assert lines[1].split()[:4] == ["rank", "host", "pid", "state"]
    assert "waiting" in lines[2]
    assert "all_reduce #21 on group 'world', job.py:" in lines[2]
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
    assert [row["state"] for row in run["ranks"]] == ["waiting", "running"]
    assert main(["resume"]) == 0
    assert main(["stop"]) == 2  # it asks, and there is nobody to answer
    assert main(["stop", "--yes"]) == 0
    assert [process.wait(10) for process in job.processes] == [-15, -15]


def test_ranks_whose_agent_is_gone_are_shown_all_the_same(
    start_job: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = start_job(WAITS, DISTDBG_AGENT="0")
    monkeypatch.setattr(tempfile, "tempdir", str(job.folder))
    out = ""
    deadline = time.monotonic() + 20
    while out.count("job.py:") < 2 and time.monotonic() < deadline:
        main(["ps"])
        out = capsys.readouterr().out
        time.sleep(0.02)  # without an agent nobody says when ranks have begun
    assert "its agent is gone" in out
    assert main(["stacks"]) == 2
    assert "the agent of run" in capsys.readouterr().err


def test_without_a_run_every_command_says_so(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["ps"]) == 0
    assert capsys.readouterr().err == "no run of this user lives on this host\n"
    for words in (["stacks"], ["stop", "--yes"], ["pause"], ["resume", "x"]):
        assert main(words) == 2
        assert "lives on this host" in capsys.readouterr().err
    assert main(["stacks", "--rank", "3-1"]) == 2
    assert "write 0-3,7" in capsys.readouterr().err
