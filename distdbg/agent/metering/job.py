"""The sums over all hosts of a job, at its root: the agents of the others are asked, one after the other.

A thread of its own asks them over the pipes of the tree; whom and when is decided in `asked_hosts`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from distdbg.agent.metering.asked_hosts import (
    AskedHosts,
    HostSilent,
    HostsSeen,
    SumsWanted,
    TotalsReceived,
    step,
)
from distdbg.client.agent_client import AgentClient
from distdbg.errors import DistError
from distdbg.export.metrics.samples import HistogramFacts
from distdbg.export.metrics.totals import Histograms, JobHistograms
from distdbg.record.folders import agent_socket

#: How long a host may take to answer.
_PATIENCE_S: Final = 3.0
#: How long the thread waits: it sees by itself which hosts have come.
_MAX_WAIT_S: Final = 1.0
_MAX_HISTOGRAMS: Final = 4096
_END_S: Final = 0.2

_log = logging.getLogger("distdbg.agent")


class JobSums:
    """What all hosts have done. Thread-safe."""

    def __init__(self, own: str, run: str) -> None:
        self._own, self._run = own, run
        self._lock = threading.Lock()
        self._histograms = JobHistograms()
        self.asked = AskedHosts()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def want(self, hosts: Mapping[str, bool], count: int) -> None:
        """These of `count` others are there now, and whether each is lost; the first begins the thread."""
        self._put(HostsSeen(time.monotonic(), hosts, count))
        if hosts and self._thread is None and not self._end.is_set():
            self._thread = threading.Thread(
                target=self._run_thread, name="distdbg-hosts", daemon=True
            )
            self._thread.start()

    def is_whole(self) -> bool:
        """Whether all of them have told something, or had time to; then it stays so."""
        self._put(SumsWanted(time.monotonic()))
        return self.asked.is_whole

    def addresses(self) -> dict[str, str]:
        """Where the other hosts that are there serve metrics, as far as they have said."""
        return self.asked.addresses

    def take(self, host: str, histograms: Histograms, *, agent: str = "", attempt: int = 0) -> None:
        """What a host says now; see `JobHistograms.take`."""
        with self._lock:
            self._histograms.take(host, histograms, agent=agent, attempt=attempt)

    def sum(self) -> dict[tuple[str, str], HistogramFacts]:
        """The sums over all hosts."""
        with self._lock:
            return self._histograms.sum()

    def close(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _put(self, event: HostsSeen | TotalsReceived | HostSilent | SumsWanted) -> None:
        with self._lock:
            self.asked = step(self.asked, event)

    # ------------------------------------------------------------------------------- the thread

    def _run_thread(self) -> None:
        try:
            while not self._end.is_set():
                host, due_s = self.asked.next_asked or ("", time.monotonic() + _MAX_WAIT_S)
                left_s = due_s - time.monotonic()
                if left_s > 0:
                    self._end.wait(min(left_s, _MAX_WAIT_S))
                else:
                    self._put(self._fetch_totals(host))
        except Exception:  # noqa: BLE001  # an observer that fails says so once
            _log.exception("the sums of the job are those of host %s alone", self._own)

    def _fetch_totals(self, host: str) -> TotalsReceived | HostSilent:
        asked_s = time.monotonic()
        try:
            with (
                AgentClient.at(agent_socket(self._run, self._own), timeout_s=_PATIENCE_S) as client,
                client.via(host) as other,
            ):
                answered = other.ask("totals")
                about = other.ask("about")
            histograms = read_histograms(answered["histograms"])
            agent, attempt = str(answered.get("agent", ""))[:100], int(answered.get("attempt", 0))
        except (DistError, OSError, ValueError, TypeError, KeyError) as error:
            _log.debug("host %s tells no numbers: %s", host, error)
            return HostSilent(asked_s, host)
        self.take(host, histograms, agent=agent, attempt=attempt)
        metrics = about.get("metrics")
        address = metrics.get("address") if isinstance(metrics, dict) else None
        return TotalsReceived(
            asked_s, time.monotonic(), host, address[:300] if isinstance(address, str) else ""
        )


def plain_histograms(histograms: Histograms) -> list[Any]:
    return [
        [
            kind,
            group,
            list(one.duration_buckets),
            one.duration_ns,
            list(one.wait_buckets),
            one.wait_ns,
            one.count,
        ]
        for (kind, group), one in histograms.items()
    ]


def read_histograms(plain: Any) -> dict[tuple[str, str], HistogramFacts]:
    """ValueError or TypeError for what is none."""
    if not isinstance(plain, list) or len(plain) > _MAX_HISTOGRAMS:
        raise ValueError("no histograms")
    return {
        (str(kind), str(group)): HistogramFacts(
            duration_buckets=tuple(map(int, durations)),
            duration_ns=int(duration_ns),
            wait_buckets=tuple(map(int, waits)),
            wait_ns=int(wait_ns),
            count=int(count),
        )
        for kind, group, durations, duration_ns, waits, wait_ns, count in plain
    }
