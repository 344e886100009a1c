"""What the loop of an agent knows and no record says: findings, ends of ranks, starts; told to `Tracing`.

Only the agent that judges the job has a verdict, so only one speaks of a finding.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from distdbg.diagnose.finding import Finding
from distdbg.export.metrics.model import Metrics
from distdbg.export.otel.log_records import group_names, key_of_finding
from distdbg.export.outlets.source import OutletSource
from distdbg.export.tracing.trace_events import (
    FindingMade,
    OpsKept,
    RankEnded,
    RanksStarted,
)
from distdbg.export.tracing.tracing import Tracing

_MAX_TOLD: Final = 4096
#: What follows from a finding is told with it, so deep.
_MAX_DEPTH: Final = 4


class TracingOutlet:
    """Implements Outlet."""

    def __init__(self, agent: OutletSource, signals: frozenset[str]) -> None:
        """UsageError when what sends is not installed."""
        self._agent = agent
        self._metering = agent.metering
        self.tracing = Tracing(agent.run_name, agent.host, signals, os.environ)
        self._metering.exemplars = self.tracing.exemplars
        self._reported: dict[tuple[Any, ...], None] = {}
        self._findings = 0
        self._ends: set[tuple[int, int]] = set()
        self._watch, self._version = agent.watch, -1
        self._roster = agent.roster
        self._begin()

    def tick(self, now_ns: int) -> None:
        """Tell what is new. Never waits."""
        self._tell_ends()
        self._exchange_keeps()
        if self._watch.version != self._version:
            self._version = self._watch.version
            self._tell_findings()
        if self.tracing.wants_metrics(now_ns):
            # It asks this loop, so it cannot be done here; nor by who sends, who may be at the last batch.
            self._agent.run_in_thread(self._metering.metrics, self._on_metrics)
        self._count()

    def begin_anew(self) -> None:
        """The ranks were started again."""
        self._tell_ends()
        self._tell_findings()  # how it was when it ended
        self._reported.clear()
        self._begin()

    def close(self, deadline_ns: int) -> None:
        """Send what there is until then."""
        self._tell_ends()
        self._exchange_keeps()
        self._tell_findings()  # the last word
        self.tracing.close(deadline_ns, self._last_metrics)
        self._count()

    def _last_metrics(self) -> Metrics | None:
        """Asked for when all else was sent or given up: with what became of it."""
        self._count()
        return self._metering.last_metrics(self._metering.counts)

    def _count(self) -> None:
        counts = self._metering.counts
        counts.spans = self.tracing.counts
        counts.queues.update(self.tracing.queued)
        counts.failures.update(self.tracing.failures)

    def _exchange_keeps(self) -> None:
        steering = self._agent.steering
        steering.keep(self.tracing.take_unreported())
        if kept := steering.kept():
            self.tracing.put(OpsKept(kept))

    def _tell_ends(self) -> None:
        for end in self._roster.ends:
            if (end.rank, end.pid) not in self._ends:
                self._ends.add((end.rank, end.pid))
                self.tracing.put(RankEnded(end))

    def _on_metrics(self, done: Future[Any]) -> None:
        if done.exception() is None:  # else it was not in time, and comes with the next
            metrics = done.result()
            self.tracing.hear_metrics(lambda: metrics)

    def _begin(self) -> None:
        self._roster = self._agent.roster
        self._watch, self._version = self._agent.watch, -1
        self._ends.clear()
        self.tracing.put(RanksStarted(self._roster.folder, self._roster.attempt, time.time_ns()))

    def _tell_findings(self) -> None:
        verdict, session = self._watch.verdict, self._watch.session
        if verdict is None or session is None:
            return
        names = group_names(session)
        for finding in verdict.findings:
            self._tell_one(finding, names, _MAX_DEPTH)

    def _tell_one(self, finding: Finding, names: Mapping[str, str], depth: int) -> None:
        key = key_of_finding(finding)
        if key not in self._reported:
            if len(self._reported) >= _MAX_TOLD:
                del self._reported[next(iter(self._reported))]
            self._reported[key] = None
            self._findings += 1
            group = names.get(finding.group, "")
            self.tracing.put(FindingMade(finding, group, self._findings, time.time_ns()))
        for one in finding.follows if depth else ():
            self._tell_one(one, names, depth - 1)
