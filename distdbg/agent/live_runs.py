"""The runs of this user that live on this host: their agents, and those whose agent is gone.

A socket that nobody serves is removed in passing. A run whose agent is gone is known by its records,
each of which is locked as long as its rank lives.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distdbg.agent import sockets
from distdbg.agent.client import AgentClient
from distdbg.agent.roster import Roster
from distdbg.errors import UsageError
from distdbg.record.folders import agents_folder, attempts, is_live, list_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """One run, as seen on this host."""

    run: str
    host: str
    socket: Path | None
    """None: its agent is gone."""
    folder: Path | None = None
    """Where its records are, when its agent is gone."""

    def connect(self, timeout_s: float = 5.0) -> AgentClient:
        """UsageError without an agent."""
        if self.socket is None:
            raise UsageError(
                f"the agent of run {self.run} is gone; its ranks live",
                hint="kill its launcher, or its ranks, to end it; `distdbg ps` names their pids",
            )
        return AgentClient.at(self.socket, timeout_s=timeout_s)


def find_live_runs(host: str, *, tempdir: str | None = None) -> list[LiveRun]:
    """By name. Several agents of one run are several hosts that are played on this one."""
    found = []
    folder = agents_folder(tempdir)
    for path in sorted(folder.glob("*.sock")):
        run, _, at = path.name.removesuffix(".sock").rpartition("@")
        if run and sockets.is_served(path):
            found.append(LiveRun(run=run, host=at, socket=path))
    served = {live.run for live in found}
    for run_folder in list_runs(tempdir):
        if run_folder.name in served:
            continue
        newest = attempts(run_folder)[-1:]
        if newest and any(is_live(path) for path in newest[0].glob("rank*.ddr")):
            found.append(LiveRun(run=run_folder.name, host=host, socket=None, folder=newest[0]))
    return found


def choose_run(runs: list[LiveRun], name: str | None) -> LiveRun:
    """The run that a command line means; UsageError when that is none or more than one."""
    if name is None:
        names = sorted({live.run for live in runs})
        if len(names) == 1:
            return next((live for live in runs if live.socket is not None), runs[0])
        if not names:
            raise UsageError("no run of this user lives on this host")
        raise UsageError(f"{len(names)} runs live here: which one?", details=names, hint="name it")
    fitting = [live for live in runs if live.run == name] or [
        live for live in runs if live.run.startswith(name)
    ]
    names = sorted({live.run for live in fitting})
    if len(names) == 1:
        return next((live for live in fitting if live.socket is not None), fitting[0])
    if not names:
        alive = sorted({live.run for live in runs})
        raise UsageError(
            f"no run {name!r} lives on this host",
            details=[f"alive: {', '.join(alive)}"] if alive else (),
        )
    raise UsageError(f"{name!r} fits {len(names)} runs", details=names)


def agents_of(runs: list[LiveRun], run: LiveRun) -> list[LiveRun]:
    """All agents of the same run: as many as there are hosts that are played on this one."""
    return [live for live in runs if live.run == run.run and live.socket is not None]


def rows_without_agent(live: LiveRun) -> list[dict[str, Any]]:
    """What the records say of a run whose agent is gone."""

    assert live.folder is not None
    roster = Roster(live.folder, live.host, is_told=True)
    try:
        now_ns = time.monotonic_ns()
        roster.tick(now_ns)
        return [asdict(row) for row in roster.rows(time.monotonic_ns())]
    finally:
        roster.close()
