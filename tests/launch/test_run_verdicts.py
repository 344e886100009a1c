"""A few ranks under `distdbg run`: what the agent proves, says once and ends, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.record.folders import agent_socket, attempt_folder
from distdbg.record.host import host_name
from distdbg.record.observations import read_sightings
from tests.support.jobs import Done, RunningJob

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

PROGRAM = str(Path(__file__).with_name("programs") / "hanging.py")
Start = Callable[..., RunningJob]


def start(start_job: Start, kind: str, *flags: str, size: int = 4) -> RunningJob:
    flags = (f"--nproc-per-node={size}", "--shutdown-timeout=1", *flags)
    return start_job(*flags, PROGRAM, kind, has_agent=True)


def times(done: Done, word: str) -> list[float]:
    return [float(line.split()[1]) for line in done.out.splitlines() if line.startswith(word + " ")]


def said(done: Done) -> list[str]:
    """The first lines of all that the agent has said."""
    return re.findall(r"^distdbg: (.*)", done.err, re.MULTILINE)


def verdict_of(job: RunningJob) -> dict[str, Any]:
    text = (attempt_folder(job.run_folder, 0) / "verdict.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def await_verdict(job: RunningJob) -> Path:
    """Wait until there is one; the folder in which it is."""
    job.until(lambda: (attempt_folder(job.run_folder, 0) / "verdict.json").exists(), "a verdict")
    return attempt_folder(job.run_folder, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "size", "ranks"),
    [
        ("cycle", 4, [0, 1]),
        ("three", 4, [0, 1, 2]),
        ("against", 2, [0, 1]),
        ("works", 2, [0, 1]),
        ("some", 4, [0, 1]),
    ],
)
def test_a_deadlock_is_said_once_and_ends_the_job(
    start_job: Start, kind: str, size: int, ranks: list[int]
) -> None:
    job = start(start_job, kind, size=size)
    done = job.wait()
    assert done.code == 1, done
    # It is the agent that ends it, and no timeout of an op; how soon: benchmarks/verdict.py.
    assert "OpTimeout" not in done.out + done.err
    assert max(times(done, "raised")) - max(times(done, "blocked")) < 30, done
    assert said(done) == [f"DEADLOCK on ranks 0-{ranks[-1]}: the job is aborted"], done
    line = done.report[0].removeprefix("DEADLOCK: ")
    assert line.startswith(f"ranks 0-{ranks[-1]} are deadlocked"), done
    assert done.err.count(line) == 1  # the report alone has it
    words = [text for text in done.out.splitlines() if text.startswith("raised ")]
    assert len(words) == size
    # The report has what the records show, which an agent may not have read when it ends the job.
    aborted = f"JobAborted: the job was aborted by the agent: {line.partition(': ')[0].partition(' (')[0]}"
    assert all(aborted in text for text in words), (words, line)
    verdict = verdict_of(job)
    [root] = [verdict["findings"][verdict["verdict"]["root"]]]
    assert (root["kind"], root["ranks"]) == ("deadlock", ranks)
    attempt = attempt_folder(job.run_folder, 0)
    stacks = (attempt / "rank00000.stacks.txt").read_text()
    assert "hanging.py" in stacks
    assert {seen.rank for seen in read_sightings(attempt)} == set(ranks)


@pytest.mark.parametrize("kind", ["way_out", "checkpoint"])
def test_who_waits_for_a_rank_that_comes_is_left_alone(start_job: Start, kind: str) -> None:
    job = start(start_job, kind)
    done = job.wait()
    assert done.code == 0, done
    assert said(done) == []
    assert not (attempt_folder(job.run_folder, 0) / "verdict.json").exists()


def test_a_stopped_rank_is_named_and_taken_back_when_it_goes_on(start_job: Start) -> None:
    job = start(start_job, "stop")
    attempt = await_verdict(job)
    log = job.run_folder / f"agent-{host_name()}.log"
    job.until(lambda: "rank 3 is stopped" in log.read_text(), "the agent says so")
    [pid] = {seen.pid for seen in read_sightings(attempt) if seen.rank == 3}
    os.kill(pid, signal.SIGCONT)
    job.until(lambda: "rank 3 goes on" in log.read_text(), "the agent says that it goes on")
    (attempt / "go").touch()
    done = job.wait()
    assert done.code == 0, done
    lines = said(done)
    assert lines[0].startswith("rank 3 is stopped"), done
    assert lines[1:] == ["rank 3 goes on: no longer stopped"], done
    assert not (attempt / "verdict.json").exists()  # it is true no more
    states = [str(seen.state) for seen in read_sightings(attempt) if seen.rank == 3]
    assert states[0] == "stopped"
    assert states[-1] != "stopped"


def test_a_deadlock_that_is_only_to_be_reported_leaves_the_job_running(start_job: Start) -> None:
    job = start(start_job, "cycle", "--on-deadlock=report")
    await_verdict(job)
    with AgentClient.at(agent_socket(job.run_folder.name, host_name(), str(job.folder))) as client:
        found = client.ask("verdict")
        waits = client.ask("waits")["waits"]
        assert client.ask("about")["control"]["abort"] is None
    assert found["lines"][0].startswith("ranks 0-1 are deadlocked")
    assert {wait["rank"]: wait["on"] for wait in waits if wait["rank"] < 2} == {0: [1], 1: [0]}
    assert not any(wait["can_go_on"] for wait in waits)
    time.sleep(0.5)  # in which an abort would have come
    assert job.process.poll() is None
    job.send(signal.SIGTERM)
    done = job.wait()
    assert len(said(done)) == 1


@pytest.mark.parametrize(
    ("kind", "found", "ranks"), [("die", "dead rank", [3]), ("mismatch", "mismatch", [3])]
)
def test_what_ranks_raise_by_themselves_is_in_the_verdict_and_not_said_again(
    start_job: Start, kind: str, found: str, ranks: list[int]
) -> None:
    job = start(start_job, kind)
    done = job.wait()
    assert done.code != 0
    assert said(done) == []
    verdict = verdict_of(job)
    root = verdict["findings"][verdict["verdict"]["root"]]
    assert (root["kind"], root["ranks"]) == (found, ranks)
