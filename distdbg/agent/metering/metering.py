"""Metrics of one agent: its loop reads the facts, the thread that asks does the rest.

    loop's thread     facts of all ranks: some short reads each   ->  in the order in which they were read
    any other thread  asks for them, adds them up, collects       <-

At most one collection per half second is made; who comes in between gets the last one. Whoever asks waits for
the loop, never the loop for anybody.

What is read is a frozen `HostFacts`, from which `Accumulator` and `collect` make the metrics without asking
anybody: the same facts make the same metrics again. `Accumulator` is changed in place, for it has a sum for
each bucket of each kind and group.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from distdbg.agent.context import AgentContext
from distdbg.agent.metering.job import JobSums, plain_histograms
from distdbg.export.metrics.collect import collect
from distdbg.export.metrics.finding_counts import FindingCounts
from distdbg.export.metrics.model import Metrics
from distdbg.export.metrics.rank_facts import RankReader, read_agent_facts
from distdbg.export.metrics.samples import Exemplars, HostFacts, JobFacts
from distdbg.export.metrics.totals import Accumulator
from distdbg.export.outlets.source import ExportCounts, NotInTime
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    from distdbg.agent.api import ApiClient
    from distdbg.client.protocol import Request
    from distdbg.export.outlets.exporting import AgentOutlets
    from distdbg.follow.roster import Roster

#: For how long what was collected is given to others as well.
KEPT_S: Final = 0.5
#: How long the loop may take to answer: its longest tick is a second.
PATIENCE_S: Final = 3.0
_WELL: Final = (RankState.ENDED, RankState.LEFT)
#: How often hosts that came or went are looked for.
_HOSTS_NS: Final = 1_000_000_000
#: How often it is looked whether ranks make group after group.
_GROUPS_NS: Final = 200_000_000


class AgentWithMetrics(AgentContext, Protocol):
    """An agent that has metrics, made at first use, and may export them."""

    exporting: AgentOutlets | None
    """None: nothing is exported."""

    @property
    def metering(self) -> Metering: ...


@dataclass(frozen=True, slots=True)
class _Read:
    """What the loop has said, once."""

    host: HostFacts
    job: JobFacts | None


class Metering:
    """The metrics of one agent. Made when somebody first wants them; nothing is read before.

    It is read when somebody asks, and of ranks that make group after group more often.
    """

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._reader = RankReader()
        self._findings = FindingCounts()
        self._verdict: tuple[int, int] = (0, 0)
        self._roster: Roster | None = None
        """The roster whose records have all been looked for."""
        self._began_s = time.time() - (time.monotonic_ns() - agent.began_ns) / 1e9
        #: What was read and is not in the totals yet; both threads use it, and append and pop are atomic.
        self._reads: deque[_Read] = deque(maxlen=64)
        self._lock = threading.Lock()  # totals, sums and what is kept
        self._totals = Accumulator()
        self._kept: tuple[float, Metrics] | None = None
        self._collect_s = 0.0
        self._newest: _Read | None = None
        self._is_closed = False
        self._asked: threading.Event | None = None
        """Set when the loop has answered whoever waits for it."""
        self._hosts_ns = self._groups_ns = 0
        self.counts = ExportCounts()
        self.exemplars: Callable[[], Exemplars] = dict
        self.sums = JobSums(agent.host, agent.run_name)

    # ------------------------------------------------------------------------------- the loop's thread

    def tick(self, now_ns: int) -> None:
        """Take in what the diagnosis has found, and which hosts there are."""
        watch = self._agent.watch
        verdict = (id(watch), watch.version)
        if verdict != self._verdict:
            self._verdict = verdict
            self._findings.take(self._agent.roster.attempt, watch.verdict)
        if now_ns - self._hosts_ns >= _HOSTS_NS:
            self._hosts_ns = now_ns
            self._look_for_hosts()
        if now_ns - self._groups_ns >= _GROUPS_NS:
            self._groups_ns = now_ns
            if self._reader.is_due(self._agent.roster):
                self._read(now_ns)
                self._agent.run_in_thread(self._add_up, lambda _: None)

    def _look_for_hosts(self) -> None:
        steering = self._agent.steering
        self.sums.want(steering.other_hosts(), steering.other_count)

    def finish(self, now_ns: int) -> None:
        """The ranks are over, or others will be started: look at all of them once more."""
        roster, watch = self._agent.roster, self._agent.watch
        roster.settle(now_ns)
        is_well = all(watched.state in _WELL for watched in roster.watched_ranks.values())
        self._findings.take(roster.attempt, None if is_well else watch.verdict)
        if roster.watched_ranks:
            self._read(now_ns)

    def answer_totals(self, request: Request, client: ApiClient) -> None:
        """The API's `totals`: what the ranks of this host have done, for the root's sums."""
        from distdbg.client import protocol

        if (
            not self._agent.roster.watched_ranks
        ):  # it begins; whoever asks knows what the one before it has told
            raise NotInTime("no rank is known on this host yet")
        self._read(time.monotonic_ns())

        def then(done: Any) -> None:
            error = done.exception()
            if error is not None:
                client.send(protocol.refuse(request.id, error))
            else:
                client.send(protocol.answer(request.id, done.result()))

        self._agent.run_in_thread(self._plain_totals, then)

    def close(self) -> None:
        """Nothing more is read; whoever waits is told."""
        self._is_closed = True
        if (asked := self._asked) is not None:
            asked.set()
        self.sums.close()

    def _read(self, now_ns: int) -> _Read:
        agent = self._agent
        began_ns = time.perf_counter_ns()
        if agent.roster is not self._roster and agent.roster.watched_ranks:
            # All of them from the first look on: else their sums would rise as records are found.
            self._roster = agent.roster
            agent.roster.settle(now_ns)
            self._look_for_hosts()
        ranks = self._reader.read(agent.roster, now_ns, agent.findings.suspicions)
        # An agent that does not know its ranks does not know either whether other hosts have some.
        is_root = agent.steering.is_root and bool(ranks)
        read_s = (time.perf_counter_ns() - began_ns) / 1e9
        host = HostFacts(
            run=agent.run_name,
            host=agent.host,
            ranks=ranks,
            agent=self.counts.put_into(
                read_agent_facts(
                    began_s=self._began_s,
                    collect_s=read_s + self._collect_s,
                    hosts_missing=self.sums.asked.missing(time.monotonic()) if is_root else None,
                )
            ),
        )
        found = _Read(host, self._read_job() if is_root else None)
        self._reads.append(found)
        return found

    def _read_job(self) -> JobFacts:
        agent = self._agent
        worlds = (
            s.record.header.world_size for s in agent.roster.watched_ranks.values() if s.record
        )
        return JobFacts(
            world_size=max(worlds, default=len(agent.roster.watched_ranks)),
            restarts=agent.roster.attempt,
            findings_now=dict(self._findings.now),
            findings_total=dict(self._findings.total),
            causes=self._findings.causes,
            is_clock_held=agent.steering.is_held,
        )

    # ------------------------------------------------------------------------------- any other thread

    def metrics(self, timeout_s: float = PATIENCE_S) -> Metrics:
        """Those of now, or of a moment ago. NotInTime when the loop does not answer."""
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise NotInTime("the agent did not answer in time")
        try:
            if self._kept is not None and time.monotonic() - self._kept[0] < KEPT_S:
                return self._kept[1]
            self._read_in_loop(deadline)
            return self._collect()
        finally:
            self._lock.release()

    def last_metrics(self, counts: ExportCounts | None = None) -> Metrics | None:
        """All that was read by now, also when the loop has ended; None: nothing was.

        `counts`: what has become of exports since.
        """
        with self._lock:
            newest = self._take_in()
            if newest is None:
                return None
            if counts is not None:
                agent = counts.put_into(newest.host.agent)
                self._newest = replace(newest, host=replace(newest.host, agent=agent))
            return self._collect(is_last=True)

    def _read_in_loop(self, deadline: float) -> None:
        done = self._asked = threading.Event()

        def read() -> None:
            try:
                self._read(time.monotonic_ns())
            finally:
                done.set()

        if not self._is_closed:
            self._agent.post(read)
            if not done.wait(max(0.0, deadline - time.monotonic())):
                raise NotInTime("the agent did not answer in time")
        if self._is_closed:
            raise NotInTime("the agent leaves")

    def _add_up(self) -> None:
        if self._lock.acquire(timeout=PATIENCE_S):
            try:
                self._take_in()
            finally:
                self._lock.release()

    def _take_in(self) -> _Read | None:
        """Add up what was read, in that order; the newest of it."""
        while self._reads:
            self._newest = self._reads.popleft()
            self._totals.take(self._newest.host)
        return self._newest

    def _collect(self, *, is_last: bool = False) -> Metrics:
        began = time.perf_counter()
        newest = self._take_in()
        if newest is None:
            raise NotInTime("nothing was read yet")
        job = newest.job
        if job is not None:
            self.sums.take(newest.host.host, self._totals.histograms())
            if is_last or self.sums.is_whole():
                job = replace(job, histograms=self.sums.sum())
        metrics = collect(newest.host, self._totals, job, self.exemplars())
        self._kept = (time.monotonic(), metrics)
        self._collect_s = time.perf_counter() - began
        return metrics

    def _plain_totals(self) -> Mapping[str, Any]:
        if not self._lock.acquire(timeout=PATIENCE_S):
            raise NotInTime("the numbers of this host are being put together")
        try:
            self._take_in()
            return {
                "agent": f"{os.getpid()} {self._agent.began_ns}",
                "attempt": self._agent.roster.attempt,
                "histograms": plain_histograms(self._totals.histograms()),
            }
        finally:
            self._lock.release()
