"""Looks for message races while the job runs.

Only where a rank has written down that a line of it receives from any rank and drops the sender: the records
of this host are then read in a thread, and again at longer and longer intervals. With ranks of other hosts
nothing is certain, so a job on several hosts is left to `distdbg analyze`, and so are records so long that
they have lost their first ops.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from distdbg.agent.context import AgentContext
    from distdbg.follow.findings import Findings

_S: Final = 1_000_000_000
_FIRST_NS: Final = 2 * _S
_LONGEST_NS: Final = 300 * _S
#: The pause is at least so many times what the last look took.
_PAUSE: Final = 50
#: Ops that other ranks were in the middle of recording when a record was read are left out.
_SLACK_NS: Final = 20_000_000

_log = logging.getLogger("distdbg.agent")


class Races:
    """The message races of one start of the ranks."""

    def __init__(self, agent: AgentContext, findings: Findings) -> None:
        self._agent = agent
        self._findings = findings
        self._found: set[tuple[int, str]] = set()
        self._is_busy = False
        self._next_ns: int | None = None
        self._pause_ns = _FIRST_NS

    def tick(self, now_ns: int) -> None:
        """Look when it is time to."""
        if self._findings.open_lines <= len(self._found) or self._is_busy:
            return
        if self._next_ns is None:
            self._next_ns = now_ns + self._pause_ns
        if now_ns >= self._next_ns:
            self._is_busy = True
            folder = self._agent.roster.folder
            self._agent.run_in_thread(lambda: find_races(folder), self._take)

    def _take(self, done: Future[tuple[list[dict[str, Any]], int]]) -> None:
        self._is_busy = False
        races: list[dict[str, Any]] = []
        took_ns = 0
        try:
            races, took_ns = done.result()
        except Exception:  # noqa: BLE001  # the ranks are watched all the same
            _log.warning("message races cannot be looked for", exc_info=True)
        for facts in races:
            line = facts["rank"], facts.pop("site")
            if line not in self._found:
                self._found.add(line)
                self._findings.add(facts)
        self._pause_ns = min(max(2 * self._pause_ns, _PAUSE * took_ns), _LONGEST_NS)
        self._next_ns = time.monotonic_ns() + self._pause_ns


def find_races(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Those that matter, in the records of one start; and the CPU time that it took."""
    from distdbg.diagnose.as_of import session_at  # with all that they need, for who has such lines
    from distdbg.diagnose.find import message_race
    from distdbg.diagnose.finding import Severity
    from distdbg.diagnose.load.run_folder import load_run
    from distdbg.diagnose.matching import match

    began_ns = time.thread_time_ns()
    # Records are read one after the other: what happened meanwhile is in some, and not in others.
    until_ns = time.time_ns() - _SLACK_NS
    session = load_run(folder)
    found: list[dict[str, Any]] = []
    if len(session.ranks) == session.world_size:
        session = session_at(session, until_ns)
        for finding in message_race.find(session, match(session), {}):
            if finding.severity is Severity.WARNING:
                rank, first = finding.ranks[0], finding.evidence[0]
                at_ns = (finding.at_ns or until_ns) - session.ranks[rank].offset_ns
                found.append(
                    {
                        "rank": rank,
                        "site": first.site,
                        "type": "MessageRace",
                        "what": finding.what,
                        "group": finding.group,
                        "kind": "recv",
                        "at_ns": at_ns,
                        "details": [fact.text for fact in finding.evidence],
                        "hint": finding.advice,
                    }
                )
    return found, time.thread_time_ns() - began_ns
