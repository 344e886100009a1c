"""Connections to a job: sockets of its agents here, on another host, or only its records.

A route opens connections and knows what can be seen from outside when nobody answers: whether the job is
over. What is behind it answers `ask`; `hello` says which run it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from distdbg.client.agent_client import AgentClient
from distdbg.client.live_runs import LiveRun
from distdbg.control import sockets
from distdbg.errors import DistError, DistNetworkError, UsageError
from distdbg.record.folders import attempt_number, attempts, is_held, is_live

if TYPE_CHECKING:
    from distdbg.client.ways import AgentRoute

#: How long an agent that was not there may take to answer.
_GLANCE_S: Final = 0.3


class FeedConnection(Protocol):
    """One connection. DistNetworkError when it is lost, another DistError when a request is refused."""

    hello: dict[str, Any]

    def ask(self, do: str, *, timeout_s: float | None = None, **arguments: Any) -> Any: ...

    def close(self) -> None: ...


class JobRoute(Protocol):
    @property
    def title(self) -> str:
        """For people: the run, 'n14:4711'."""
        ...

    @property
    def address(self) -> str:
        """What other commands take to reach the same job; '' when none can."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where its records can be read from here; None: nowhere, or not known."""
        ...

    def open(self, timeout_s: float) -> FeedConnection:
        """Connect. DistError: nobody answers."""
        ...

    def is_over(self) -> bool | None:
        """Whether the job has ended, as seen from outside; None: it cannot be told."""
        ...

    def is_served(self) -> bool:
        """Whether an agent answers now, where something else stands in for it."""
        ...

    def close(self) -> None:
        """Let go of what leads there."""
        ...


class RunRoute:
    """A run of this user that lives on this host, by the sockets of its agents."""

    def __init__(self, runs: Sequence[LiveRun]) -> None:
        """`runs`: all agents of the run here; several play several hosts."""
        if not runs:
            raise UsageError("no run to show")
        self._runs = list(runs)
        self._run_folder = _run_folder(self._runs[0].folder)

    @property
    def title(self) -> str:
        return self._runs[0].run

    @property
    def address(self) -> str:
        return self._runs[0].run

    @property
    def folder(self) -> Path | None:
        return self._run_folder

    def open(self, timeout_s: float) -> FeedConnection:
        try:
            return self._open_agent(timeout_s)
        except DistError:
            # The ranks are none the worse, and their records are here.
            attempt = _newest(self._run_folder)
            if attempt is None or is_folder_over(self._run_folder) is not False:
                raise
            from distdbg.client.feed.from_records import (
                RecordsClient,  # slow to load, seldom needed
            )

            return RecordsClient(attempt, self.title, self._runs[0].host)

    def is_over(self) -> bool | None:
        return False if self._has_socket() else is_folder_over(self._run_folder)

    def is_served(self) -> bool:
        if not self._has_socket():
            return False
        try:
            self._open_agent(_GLANCE_S).close()
        except DistError:
            return False
        return True

    def close(self) -> None:
        """Nothing is held."""

    def _has_socket(self) -> bool:
        return any(run.socket is not None and sockets.is_served(run.socket) for run in self._runs)

    def _open_agent(self, timeout_s: float) -> AgentClient:
        """The agent of the job's first host, where it is here; else any."""
        last: DistError | None = None
        found: list[tuple[LiveRun, AgentClient]] = []
        root: AgentClient | None = None
        for run in self._runs:
            try:
                client = run.connect(timeout_s)
            except DistError as error:
                last = error
                continue
            try:
                about = client.ask("about")
            except DistError as error:
                client.close()
                last = error
                continue
            found.append((run, client))
            if self._run_folder is None and about.get("run_folder"):
                self._run_folder = Path(about["run_folder"])
            if len(self._runs) == 1 or (about.get("tree") or {}).get("is_root"):
                root = client
                self._runs = [
                    run,
                    *(one for one in self._runs if one is not run),
                ]  # first, the next time
                break
        if root is None and found:
            root = found[0][1]
        for _, client in found:
            if client is not root:
                client.close()
        if root is None:
            raise last or DistNetworkError(f"no agent answers for run {self.title}")
        return root


class RemoteRoute:
    """An agent on another host, or one that listens: nothing of it is seen but what it says."""

    folder: Path | None = None

    def __init__(self, way: AgentRoute, address: str) -> None:
        """`address`: as it was given on the command line."""
        self._way = way
        self._address = address

    @property
    def title(self) -> str:
        return self._way.name

    @property
    def address(self) -> str:
        return self._address

    def open(self, timeout_s: float) -> FeedConnection:
        return self._way.connect_root(timeout_s)

    def is_over(self) -> bool | None:
        return None

    def is_served(self) -> bool:
        return False

    def close(self) -> None:
        self._way.close()


def newest_run(runs: Sequence[LiveRun]) -> LiveRun | None:
    """The one that began last; of its agents any."""

    def began(run: LiveRun) -> tuple[int, str]:
        path = run.socket if run.socket is not None else run.folder
        try:
            return (os.stat(path).st_ctime_ns if path is not None else 0), run.run
        except OSError:
            return 0, run.run  # it has just left

    newest = max(runs, key=began, default=None)
    if newest is None:
        return None
    return next((one for one in runs if one.run == newest.run and one.socket is not None), newest)


def is_folder_over(run_folder: Path | None) -> bool | None:
    """Whether nobody writes into a run's folder any more, or it is not there; None: it is not known."""
    if run_folder is None:
        return None
    if not run_folder.is_dir():
        return True
    if is_held(run_folder, tries=1):
        return False
    last = attempts(run_folder)[-1:]
    return not any(is_live(path) for folder in last for path in folder.glob("rank*.ddr"))


def _newest(run_folder: Path | None) -> Path | None:
    """The folder of the newest start of the ranks."""
    return next(reversed(attempts(run_folder)), None) if run_folder is not None else None


def _run_folder(attempt: Path | None) -> Path | None:
    if attempt is None or attempt_number(attempt) is None:
        return attempt
    return attempt.parent
