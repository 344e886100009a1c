"""The agent of one host as its parts see it: what is known of the ranks, and what its loop may be asked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import selectors
    from pathlib import Path

    from distdbg.agent.api import ApiServer
    from distdbg.agent.judging.watch import LiveDiagnosis
    from distdbg.agent.steering import Steering
    from distdbg.follow.findings import Findings
    from distdbg.follow.roster import Roster
    from distdbg.follow.status import RankStatus
    from distdbg.record.ends import RankEnd


class AgentContext(Protocol):
    """What HostAgent is to its parts; they are made by it and live as long."""

    folder: Path
    run_name: str
    host: str
    addr: str
    """Where the job's other hosts reach this one, as the launcher says; '' without one."""
    began_ns: int
    selector: selectors.DefaultSelector
    server: ApiServer
    steering: Steering
    roster: Roster
    """Another one after each start of the ranks; so is `watch`."""
    watch: LiveDiagnosis

    @property
    def findings(self) -> Findings:
        """What was found among the notes of the ranks."""
        ...

    @property
    def ends(self) -> list[RankEnd]:
        """How ranks of the newest start ended."""
        ...

    @property
    def has_launcher(self) -> bool: ...

    def rows(self) -> list[RankStatus]:
        """The ranks of this host now."""
        ...

    def post(self, call: Callable[[], None]) -> None:
        """Have it called in the loop; from any thread."""
        ...

    def run_in_thread(self, do: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Do what takes long in a thread; `then` is called in the loop with its outcome."""
        ...

    def print_lines(self, lines: list[str]) -> None:
        """Tell whoever looks at the job."""
        ...
