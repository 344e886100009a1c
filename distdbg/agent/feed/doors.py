"""Where a job is reached: by the sockets of its agents here, by a port, or only by its records.

A door opens connections and knows what can be seen from outside when nobody answers: whether the job is
over. What is behind it answers `ask`; `hello` says which run it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from distdbg.agent.client import AgentClient
from distdbg.agent.feed.from_records import RecordsClient
from distdbg.agent.live_runs import LiveRun
from distdbg.control import sockets
from distdbg.errors import DistError, DistNetworkError, UsageError
from distdbg.record.folders import attempt_number, attempts, is_held, is_live

#: How long an agent that was not there may take to answer.
_GLANCE_S: Final = 0.3


class Asked(Protocol):
    """One connection. DistNetworkError when it is lost, another DistError when a request is refused."""

    hello: dict[str, Any]

    def ask(self, do: str, *, timeout_s: float | None = None, **arguments: Any) -> Any: ...

    def close(self) -> None: ...


class Door(Protocol):
    """The way to one job."""

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

    def open(self, timeout_s: float) -> Asked:
        """Connect. DistError: nobody answers."""
        ...

    def is_over(self) -> bool | None:
        """Whether the job has ended, as seen from outside; None: it cannot be told."""
        ...

    def is_served(self) -> bool:
        """Whether an agent answers now, where something else stands in for it."""
        ...


class RunDoor:
    """A run of this user that lives on this host, by the sockets of its agents."""

    def __init__(self, runs: Sequence[LiveRun]) -> None:
        """`runs`: all agents of the run here; several play several hosts."""
        if not runs:
            raise UsageError("there is no run to be shown")
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

    def open(self, timeout_s: float) -> Asked:
        try:
            return self._open_agent(timeout_s)
        except DistError:
            # The ranks are none the worse, and their records are here.
            attempt = _newest(self._run_folder)
            if attempt is None or is_folder_over(self._run_folder) is not False:
                raise
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
                about = client.ask("about")
            except DistError as error:
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


class AddressDoor:
    """An agent that listens on a port, for those who have the run's token."""

    folder: Path | None = None

    def __init__(self, host: str, port: int, token: bytes) -> None:
        self._host, self._port, self._token = host, port, token

    @property
    def title(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def address(self) -> str:
        return self.title

    def open(self, timeout_s: float) -> Asked:
        return AgentClient.over_tcp(self._host, self._port, self._token, timeout_s=timeout_s)

    def is_over(self) -> bool | None:
        return None

    def is_served(self) -> bool:
        return False


class RecordsDoor:
    """A run without an agent: what its records on this host say while its ranks live."""

    address = ""

    def __init__(self, run: LiveRun) -> None:
        """UsageError when nothing is known of its records."""
        if run.folder is None:
            raise UsageError(
                f"no agent answers for run {run.run}, and its records are not where they are looked for",
                hint="give the folder of its records",
            )
        self._run = run
        self._attempt = run.folder

    @property
    def title(self) -> str:
        return self._run.run

    @property
    def folder(self) -> Path | None:
        return _run_folder(self._attempt)

    def open(self, timeout_s: float) -> Asked:  # nobody has to answer
        if self.is_over():
            raise DistNetworkError(f"run {self._run.run} is over")
        return RecordsClient(self._attempt, self._run.run, self._run.host)

    def is_over(self) -> bool | None:
        return is_folder_over(self.folder)

    def is_served(self) -> bool:
        return False


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
