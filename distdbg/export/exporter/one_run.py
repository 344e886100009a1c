"""Metrics of one run from its records alone: running without an agent, or finished.

Its starts are read one after the other, so that totals are those of the whole run. The records may be those
of several hosts, played on this one or copied to it: each host is one collected set.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from distdbg.client.feed.connections import is_folder_over
from distdbg.client.feed.final import final_verdict
from distdbg.control.page import read_page
from distdbg.errors import RecordError
from distdbg.export.metrics.collect import collect
from distdbg.export.metrics.finding_counts import FindingCounts
from distdbg.export.metrics.model import Metrics
from distdbg.export.metrics.rank_facts import RankReader, read_agent_facts
from distdbg.export.metrics.samples import HostFacts, JobFacts
from distdbg.export.metrics.totals import Accumulator, JobHistograms
from distdbg.follow.process_ends import Life
from distdbg.follow.roster import Roster
from distdbg.record.ends import read_ends
from distdbg.record.folders import SUFFIX, attempt_number, attempts
from distdbg.record.reader import RecordFile

_MAX_HOSTS: Final = 1024


@dataclass(slots=True)
class _Host:
    """The ranks of one host, over all starts."""

    reader: RankReader = field(default_factory=RankReader)
    totals: Accumulator = field(default_factory=Accumulator)
    roster: Roster | None = None
    lives: dict[int, Life] = field(default_factory=dict)
    """By descriptor, the processes whose end is to be noticed."""

    def close(self) -> None:
        if self.roster is not None:
            self.roster.close()
            self.roster = None
        self.lives.clear()


class RunMeter:
    """One run; `collect` it now and then, in one thread."""

    def __init__(self, folder: Path, run: str, began_s: float) -> None:
        """`folder`: of the run; `began_s`: when whoever serves this began."""
        self.run = run
        self._folder = folder
        self._began_s = began_s
        self._hosts: dict[str, _Host] = {}
        self._sums = JobHistograms()
        self._findings = FindingCounts()
        self._attempt: Path | None = None
        self._names: frozenset[str] = frozenset()
        """The names of the records whose headers are known."""
        self._collect_s = 0.0
        self._final: tuple[Metrics, ...] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self._final is not None

    def collect(self) -> tuple[Metrics, ...]:
        """One set for each host; () while there is no record."""
        if self._final is not None:
            return self._final
        # First of all: what is written until now is read below.
        is_over = is_folder_over(self._folder) is not False
        began = time.perf_counter()
        for folder in self._starts():
            self._begin(folder)
        found = self._collect(is_over)
        self._collect_s = time.perf_counter() - began
        if is_over and found:  # without a record it may be about to begin
            self._final = found
            self.close()
        return found

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()

    # ------------------------------------------------------------------------------- starts

    def _starts(self) -> list[Path]:
        """Those that have not been begun; the last one stays until there is another."""
        found = attempts(self._folder)
        if self._attempt in found:
            found = found[found.index(self._attempt) + 1 :]
        return found

    def _begin(self, folder: Path) -> None:
        if self._attempt is not None:
            self._read_all(self._attempt, is_over=True)
            for host in self._hosts.values():
                host.close()
        self._attempt = folder

    # ------------------------------------------------------------------------------- one start

    def _collect(self, is_over: bool) -> tuple[Metrics, ...]:
        folder = self._attempt
        if folder is None:
            return ()
        facts = self._read_all(folder, is_over=is_over)
        if not any(one.ranks for one in facts):
            return ()
        for one in facts:
            totals = self._hosts[one.host].totals
            self._sums.take(one.host, totals.histograms())
        worlds = [
            watched.record.header.world_size
            for host in self._hosts.values()
            for watched in (host.roster.watched_ranks.values() if host.roster is not None else ())
            if watched.record is not None
        ]
        job = JobFacts(
            world_size=max(worlds, default=sum(len(one.ranks) for one in facts)),
            restarts=attempt_number(folder) or 0,
            findings_now=dict(self._findings.now),
            findings_total=dict(self._findings.total),
            causes=self._findings.causes,
            is_clock_held=not is_over and any(_is_held(folder, one.host) for one in facts),
            histograms=self._sums.sum(),
        )
        return tuple(
            collect(one, self._hosts[one.host].totals, job if not index else None)
            for index, one in enumerate(facts)
        )

    def _read_all(self, folder: Path, *, is_over: bool) -> list[HostFacts]:
        """All hosts, the first one that of the lowest rank; taken in."""
        number = attempt_number(folder) or 0
        self._look_for_hosts(folder, number)
        now_ns = time.monotonic_ns()
        self._findings.take(number, final_verdict(folder))
        ends = list(read_ends(folder)) if is_over else []
        agent = read_agent_facts(began_s=self._began_s, collect_s=self._collect_s, hosts_missing=0)
        found = []
        for name, host in self._hosts.items():
            roster = host.roster
            if roster is None:
                continue
            roster.tick(now_ns)
            _look_for_ends(roster, host.lives, now_ns)
            for end in ends:
                if end.host == name:
                    roster.on_reported_end(end)
            ranks = host.reader.read(roster, now_ns)
            facts = HostFacts(run=self.run, host=name, ranks=ranks, agent=agent)
            host.totals.take(facts)
            found.append(facts)
        return sorted(found, key=lambda one: min((r.rank for r in one.ranks), default=1 << 31))

    def _look_for_hosts(self, folder: Path, number: int) -> None:
        paths = sorted(folder.glob(f"rank*{SUFFIX}"))
        names = frozenset(str(path) for path in paths)
        if names == self._names:
            return
        for path in paths:
            try:
                with RecordFile(path, salvage=True) as record:
                    header = record.header
            except RecordError:
                names -= {str(path)}  # not whole yet
                continue
            self.run = header.run or self.run
            if header.host not in self._hosts and len(self._hosts) >= _MAX_HOSTS:
                continue
            host = self._hosts.setdefault(header.host, _Host())
            if host.roster is None:
                host.roster = _open(folder, header.host, number, host.lives)
        self._names = names


def _open(folder: Path, host: str, number: int, lives: dict[int, Life]) -> Roster:
    def watch(life: Life) -> None:
        lives[life.fileno()] = life

    def unwatch(life: Life) -> None:
        lives.pop(life.fileno(), None)

    # Told: whoever is watched by somebody else has its end written by that.
    return Roster(folder, host, attempt=number, is_reported=True, watch=watch, unwatch=unwatch)


def _look_for_ends(roster: Roster, lives: dict[int, Life], now_ns: int) -> None:
    poll = select.poll()
    for fd in lives:
        poll.register(fd, select.POLLIN)
    for fd, _ in poll.poll(0) if lives else ():
        roster.on_gone(lives[fd], now_ns)


def _is_held(folder: Path, host: str) -> bool:
    try:
        state = read_page(folder, host)
    except RecordError:
        return False
    return state is not None and bool(state.holds)
