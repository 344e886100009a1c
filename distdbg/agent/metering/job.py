"""The sums over all hosts of a job, at its root: the agents of the others are asked, one after the other.

A thread of its own asks each every ten seconds or so, over the pipes of the tree. A host that does not answer
keeps its last numbers, and is counted as missing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from distdbg.agent.client import AgentClient
from distdbg.errors import DistError
from distdbg.export.metrics.facts import HistogramFacts
from distdbg.export.metrics.totals import JobHistograms
from distdbg.record.folders import agent_socket

_EVERY_S: Final = 10.0
#: How long one may take, and how long one that did not answer is left alone.
_PATIENCE_S: Final = 3.0
_REST_S: Final = 20.0
#: After which the numbers of a host that said nothing new are not those of now.
_STALE_S: Final = 35.0
_MOST_HISTOGRAMS: Final = 4096
_END_S: Final = 0.2

Histograms = Mapping[tuple[str, str], HistogramFacts]

_log = logging.getLogger("distdbg.agent")


class JobSums:
    """What all hosts have done. Thread-safe."""

    def __init__(self, own: str, run: str) -> None:
        self._own, self._run = own, run
        self._lock = threading.Lock()
        self._histograms = JobHistograms()
        self._wanted: tuple[str, ...] = ()
        self._lost: frozenset[str] = frozenset()
        self._asked: dict[str, float] = {}
        """When each is asked again."""
        self._heard: dict[str, float] = {}
        self._addresses: dict[str, str] = {}
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def want(self, hosts: Mapping[str, bool]) -> None:
        """These are the others now, and whether each is lost; the thread begins with the first of them."""
        self._wanted = tuple(hosts)
        self._lost = frozenset(host for host, is_lost in hosts.items() if is_lost)
        if self._wanted and self._thread is None and not self._end.is_set():
            self._thread = threading.Thread(
                target=self._run_thread, name="distdbg-hosts", daemon=True
            )
            self._thread.start()

    def missing(self, now: float) -> int:
        """How many of them are lost, or have said nothing lately; `now` in monotonic seconds."""
        return sum(
            host in self._lost or now - self._heard.get(host, -_STALE_S) >= _STALE_S
            for host in self._wanted
        )

    def addresses(self) -> dict[str, str]:
        """Where the other hosts that are there serve metrics, as far as they have said."""
        known = dict(self._addresses)
        return {host: known[host] for host in self._wanted if host in known}

    def take(self, host: str, histograms: Histograms) -> None:
        """What a host says now."""
        with self._lock:
            self._histograms.take(host, histograms)

    def sum(self) -> dict[tuple[str, str], HistogramFacts]:
        """Of all hosts."""
        with self._lock:
            return self._histograms.sum()

    def close(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(_END_S)

    # ------------------------------------------------------------------------------- the thread

    def _run_thread(self) -> None:
        try:
            while not self._end.wait(self._ask_due()):
                pass
        except Exception:  # noqa: BLE001  # an observer that fails says so once
            _log.exception("the sums of the job are those of host %s alone", self._own)

    def _ask_due(self) -> float:
        """Ask who is due; how long to wait then."""
        for host in self._wanted:
            now = time.monotonic()
            if self._end.is_set():
                break
            if now < self._asked.get(host, 0.0) or host in self._lost:
                continue
            self._asked[host] = now + (_EVERY_S if self._ask(host) else _REST_S)
        wanted = [host for host in self._wanted if host not in self._lost]
        due = min((self._asked.get(host, 0.0) for host in wanted), default=0.0)
        return min(1.0, max(0.1, due - time.monotonic()))

    def _ask(self, host: str) -> bool:
        try:
            with (
                AgentClient.at(agent_socket(self._run, self._own), timeout_s=_PATIENCE_S) as client,
                client.via(host) as other,
            ):
                told = other.ask("totals")
                about = other.ask("about")
            histograms = read_histograms(told["histograms"])
        except (DistError, OSError, ValueError, TypeError, KeyError) as error:
            _log.debug("host %s tells no numbers: %s", host, error)
            return False
        self.take(host, histograms)
        self._heard[host] = time.monotonic()
        metrics = about.get("metrics")
        if isinstance(metrics, dict) and isinstance(metrics.get("address"), str):
            self._addresses[host] = metrics["address"][:300]
        return True


def plain_histograms(histograms: Histograms) -> list[Any]:
    """For JSON."""
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
    if not isinstance(plain, list) or len(plain) > _MOST_HISTOGRAMS:
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
