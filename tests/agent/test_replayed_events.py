"""What an agent has seen of a real incident leads to the same verdicts without ranks, files and hosts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer

from distdbg.agent.host_agent import HostAgent
from distdbg.agent.judging.diagnosis_events import Event, VerdictMade
from distdbg.record.host import host_name
from tests.agent.conftest import Job
from tests.agent.recorded_events import read_events, replay, write_events

CYCLE = "dist.recv(x, src=1 - rank)\n"
ABORT_ON = frozenset(("deadlock",))


def await_folder(job: Job) -> Path:
    """The run's folder, as soon as a rank has made it."""
    deadline = time.monotonic() + 60
    while not list(job.folder.glob("distdbg-*/latest")):
        assert time.monotonic() < deadline, job.output(0)
        time.sleep(0.02)  # nothing announces that a rank has joined
    return job.run_folder


def watch_to_its_end(folder: Path) -> list[Event]:
    """What the agent of this host sees of a job, which it aborts."""
    agent = HostAgent(
        folder, folder.name, host_name(), expected=frozenset((0, 1)), abort_on=ABORT_ON
    )
    events: list[Event] = []
    agent.watch.on_event = events.append
    deadline = Timer(60, agent.leave)
    deadline.start()
    agent.run()
    deadline.cancel()
    return events


def test_the_events_of_a_deadlock_replay_to_its_verdicts(start_job: Callable[..., Job]) -> None:
    job = start_job(CYCLE, DISTDBG_AGENT="0")
    folder = await_folder(job)
    events = watch_to_its_end(folder)
    assert "JobAborted: the job was aborted by the agent" in job.output(0)
    text = write_events(events)
    verdicts = [one.judged.plain for one in events if isinstance(one, VerdictMade)]
    job.kill()
    for path in folder.glob("*.ddr"):
        path.unlink()

    again = replay(read_events(text), ABORT_ON, run=folder.name, source=str(folder))
    assert again.verdicts == verdicts
    assert again.written[-1] == json.loads((folder / "verdict.json").read_text())
    assert again.said == ["DEADLOCK on ranks 0-1: the job is aborted"]
    assert [one["findings"][0]["kind"] for one in again.aborted] == ["deadlock"]

    moved = text.replace('"still_wait": true', '"still_wait": false')
    again = replay(read_events(moved), ABORT_ON, run=folder.name, source=str(folder))
    assert (again.verdicts, again.said, again.aborted) == (verdicts, [], [])
