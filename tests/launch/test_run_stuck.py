"""Three ranks of which one is stuck: its agent says how, and Ctrl-C ends the job all the same."""

from __future__ import annotations

import importlib.util
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.errors import DistNetworkError
from distdbg.record.folders import agent_socket
from distdbg.record.host import host_name
from tests.support.jobs import RunningJob

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

PROGRAM = str(Path(__file__).with_name("programs") / "failing.py")
#: How soon the agent knows it is measured by benchmarks/verdict.py.
LIMIT_S = 60.0


def ask_agent(job: RunningJob) -> list[dict[str, Any]]:
    """The rows of all ranks; [] while there is no agent."""
    path = agent_socket(job.run_folder.name, host_name(), str(job.folder))
    try:
        with AgentClient.at(path) as client:
            return list(client.ask("ranks")["ranks"])
    except (DistNetworkError, FileNotFoundError):
        return []


def is_waited_for(rows: list[dict[str, Any]]) -> bool:
    return [row["state"] for row in rows].count("waiting") == 2


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        ("stop", {"stopped"}),
        ("gil", {"holds the GIL"}),
        ("loop", {"busy"}),
        ("lock", {"asleep"}),
    ],
)
def test_a_stuck_rank_is_told_apart_from_those_that_wait_for_it(
    start_job: Callable[..., RunningJob], kind: str, states: set[str]
) -> None:
    if kind == "gil" and importlib.util.find_spec("py_spy") is None:
        states = states | {"busy", "asleep"}
    job = start_job("--nproc-per-node=3", "--shutdown-timeout=1", PROGRAM, kind, has_agent=True)
    deadline = time.monotonic() + LIMIT_S
    rows: list[dict[str, Any]] = []
    while not (rows and rows[2]["state"] in states and is_waited_for(rows)):
        assert time.monotonic() < deadline, rows
        assert job.process.poll() is None, job.wait()
        time.sleep(0.05)  # a person looks again
        rows = sorted(ask_agent(job), key=lambda row: int(row["rank"]))
    assert rows[2]["progress_age_s"] < LIMIT_S
    began = time.monotonic()
    job.send(signal.SIGINT)
    done = job.wait()
    assert done.code == 128 + signal.SIGINT
    assert time.monotonic() - began < 30.0
    assert [end.was_asked for end in job.ends()] == [True] * 3
