"""Running jobs of this user on this host, with or without an agent.

Dead sockets are removed. A run without an agent is known by its records, each locked while its rank runs: the
agent has ended, has not started yet, or is turned off.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distdbg.client.agent_client import AgentClient
from distdbg.control import sockets
from distdbg.errors import UsageError
from distdbg.record.folders import agents_folder, attempts, is_live, list_runs

#: Whether a rank makes progress takes two looks.
_BETWEEN_LOOKS_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """One run, as seen on this host."""

    run: str
    host: str
    socket: Path | None
    """None: no agent listens."""
    folder: Path | None = None
    """Where its records are; None when they are in a folder that the user chose."""

    def connect(self, timeout_s: float = 5.0) -> AgentClient:
        """UsageError without an agent."""
        if self.socket is None:
            raise UsageError(
                f"no agent answers for run {self.run}, whose ranks are running",
                hint="it is still starting, has ended, or is turned off by --no-agent or DISTDBG_AGENT=0",
            )
        return AgentClient.at(self.socket, timeout_s=timeout_s)


def find_live_runs(host: str, *, tempdir: str | None = None) -> list[LiveRun]:
    """The running jobs by name. Several agents of one run are hosts that are simulated on this one."""
    records = {folder.name: folder for folder in list_runs(tempdir)}
    found = []
    for path in sorted(agents_folder(tempdir).glob("*.sock")):
        run, _, at = path.name.removesuffix(".sock").rpartition("@")
        if run and sockets.is_served(path):
            folder = _last_attempt(records[run]) if run in records else None
            found.append(LiveRun(run=run, host=at, socket=path, folder=folder))
    served = {live.run for live in found}
    for run, run_folder in records.items():
        if run in served:
            continue
        folder = _last_attempt(run_folder)
        if folder is not None and any(is_live(path) for path in folder.glob("rank*.ddr")):
            found.append(LiveRun(run=run, host=host, socket=None, folder=folder))
    return found


def _last_attempt(run_folder: Path) -> Path | None:
    return next(reversed(attempts(run_folder)), None)


def choose_run(runs: list[LiveRun], name: str | None) -> LiveRun:
    """The run that a command line means; UsageError when that is none or more than one."""
    if name is None:
        names = sorted({live.run for live in runs})
        if len(names) == 1:
            return next((live for live in runs if live.socket is not None), runs[0])
        if not names:
            raise UsageError("no running job of this user on this host")
        raise UsageError(
            f"{len(names)} jobs are running on this host",
            details=_summaries(runs, names),
            hint="give the run of one",
        )
    fitting = (
        [live for live in runs if live.run == name]
        or [live for live in runs if live.run.startswith(name)]
        or [live for live in runs if live.run == _run_of(name)]
    )
    names = sorted({live.run for live in fitting})
    if len(names) == 1:
        return next((live for live in fitting if live.socket is not None), fitting[0])
    if not names:
        alive = sorted({live.run for live in runs})
        raise UsageError(
            f"no running job {name!r} on this host",
            details=[f"running: {', '.join(alive)}"] if alive else (),
        )
    raise UsageError(
        f"{name!r} fits {len(names)} runs",
        details=_summaries(fitting, names),
        hint="give a longer prefix",
    )


def _run_of(path: str) -> str:
    """The run whose folder this is; ''."""
    from distdbg.diagnose.load.run_folder import run_name

    return run_name(Path(path)) if Path(path).is_dir() else ""


def _summaries(runs: list[LiveRun], names: list[str]) -> list[str]:
    """Script, ranks and age of each, where its records are known."""
    from distdbg.record.run_summary import summarize_run

    folders = {live.run: live.folder for live in runs if live.folder is not None}
    return [
        name if (folder := folders.get(name)) is None else summarize_run(_run_folder(folder))
        for name in names
    ]


def _run_folder(attempt: Path) -> Path:
    return attempt.parent if attempt.name.startswith("attempt_") else attempt


def agents_of(runs: list[LiveRun], run: LiveRun) -> list[LiveRun]:
    """All agents of the same run: as many as there are hosts that are played on this one."""
    return [live for live in runs if live.run == run.run and live.socket is not None]


def rows_without_agent(live: LiveRun) -> list[dict[str, Any]]:
    """What the records say of a run for which no agent answers."""
    if live.folder is None:
        return []
    from distdbg.follow.roster import Roster  # slow to load, for who needs it not

    roster = Roster(live.folder, live.host, is_reported=True)
    try:
        roster.tick(time.monotonic_ns())
        time.sleep(_BETWEEN_LOOKS_S)
        roster.tick(time.monotonic_ns())
        return [asdict(row) for row in roster.rows(time.monotonic_ns())]
    finally:
        roster.close()
