"""Under no launcher of ours: the agent's log, the ranks' exception, and who asks, have the verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CYCLE = "dist.recv(x, src=1 - rank)\n"
#: Rank 1 does something of its own until it is told to come.
LATE = """
while rank == 1 and not os.path.exists(os.environ["TMPDIR"] + "/go"):
    time.sleep(0.01)
dist.all_reduce(x)
"""
WHAT = "ranks 0-1 are deadlocked"


def test_ranks_that_wait_for_each_other_raise_why(start_job: Callable[..., Any]) -> None:
    job = start_job(CYCLE)
    for rank, process in enumerate(job.processes):
        assert process.wait(120) == 1
        assert f"JobAborted: the job was aborted by the agent: {WHAT}" in job.output(rank)
        assert f"rank {rank} waits in recv from rank {1 - rank}" in job.output(rank)
    folder = job.run_folder
    [log] = folder.glob("agent-*.log")
    assert log.read_text().count(f"aborting the job: {WHAT}") == 1
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["findings"][0]["kind"] == "deadlock"


@pytest.mark.slow
def test_who_may_not_abort_reports(start_job: Callable[..., Any]) -> None:
    job = start_job(CYCLE, DISTDBG_ABORT_ON="dead,mismatch")
    with job.connect() as client:
        client.ask("subscribe", to=["verdict"])
        found: dict[str, Any] = {}
        for event in client.events(30):
            found = event.get("verdict", found)
            if found and found["lines"] and WHAT in found["lines"][0]:
                break
        assert found["lines"][0].startswith(WHAT)
        assert sorted((wait["rank"], wait["on"]) for wait in found["waits"]) == [(0, [1]), (1, [0])]
        assert found["verdict"]["verdict"]["root"] == 0
    environ = os.environ | {"TMPDIR": str(job.folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "distdbg", "ps"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"  verdict: {WHAT}" in done.stdout
    marked = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("  ! ")]
    assert marked == ["0", "1"]
    assert all(process.poll() is None for process in job.processes)


@pytest.mark.slow
def test_who_waits_for_a_rank_that_computes_reads_so_and_is_left_alone(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(LATE)
    with job.connect() as client:
        job.await_row(client, 0, lambda row: row["state"] == "waiting")
        waits: list[dict[str, Any]] = []
        deadline = time.monotonic() + 120
        while not waits and time.monotonic() < deadline:
            waits = client.ask("waits")["waits"]
            time.sleep(0.02)  # the agent looks ten times a second
        assert [(wait["rank"], wait["on"], wait["can_go_on"]) for wait in waits] == [(0, [1], True)]
    (job.folder / "go").touch()
    folder = job.run_folder
    assert [process.wait(120) for process in job.processes] == [0, 0]
    [log] = folder.glob("agent-*.log")
    assert "distdbg:" not in log.read_text()
    assert not (folder / "verdict.json").exists()


CAUGHT = """
try:
    dist.all_reduce(np.ones(3 + rank))
except dist.MismatchError:
    pass
for _ in range(100):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
"""


def _await_stall(job: Any) -> dict[str, Any]:
    """The verdict of the agent, as soon as it is about who waits now."""
    verdict: dict[str, Any] = {}
    with job.connect() as client:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            verdict = client.ask("verdict")["verdict"] or {}
            if [one["ranks"] for one in verdict.get("findings", ()) if one["kind"] == "stall"] == [
                [1]
            ]:
                break
            time.sleep(0.02)  # the agent looks ten times a second
    return verdict


@pytest.mark.slow
def test_a_mismatch_that_ranks_caught_is_not_why_they_wait_later(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(CAUGHT + LATE)
    verdict = _await_stall(job)
    assert [(one["kind"], one["severity"], one["ranks"]) for one in verdict["findings"]] == [
        ("stall", "note", [1]),
        ("mismatch", "note", []),
    ]
    assert verdict["verdict"]["root"] == 0
    assert not (job.run_folder / "verdict.json").exists()
    (job.folder / "go").touch()
    assert [process.wait(120) for process in job.processes] == [0, 0]


def test_a_mismatch_of_which_ranks_die_after_they_had_caught_another_is_still_the_cause(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(CAUGHT + "dist.all_reduce(np.ones(30 + rank))\n")
    assert [process.wait(120) for process in job.processes] == [1, 1]
    folder = job.run_folder
    deadline = time.monotonic() + 120
    while not (folder / "verdict.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # the agent writes it when the last rank is gone
    verdict = json.loads((folder / "verdict.json").read_text())
    root = verdict["findings"][verdict["verdict"]["root"]]
    assert (root["kind"], root["severity"]) == ("mismatch", "error")
    assert "#121 " in root["what"] or "#122 " in root["what"]
