"""The sums over all hosts of a job, at its root: the agents of the others are asked, one after the other.

A thread of its own asks each every ten seconds or so, and more often at first, over the pipes of the tree. A
host that does not answer keeps its last numbers, and is counted as missing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from distdbg.client.agent_client import AgentClient
from distdbg.errors import DistError
from distdbg.export.metrics.samples import HistogramFacts
from distdbg.export.metrics.totals import Histograms, JobHistograms
from distdbg.record.folders import agent_socket

_EVERY_S: Final = 10.0
#: At first, and for each host: then what is told is not much older than a tenth of the job.
_FIRST_EVERY_S: Final = 1.0
_HOST_S: Final = 0.1
_SHARE: Final = 0.1
#: For how long the sums wait until all hosts have told theirs.
_WHOLE_S: Final = 12.0
#: How long one may take, and how long one that did not answer is left alone: twice as long each time.
_PATIENCE_S: Final = 3.0
_REST_S: Final = 20.0
#: After which the numbers of a host that said nothing new are not those of now.
_STALE_S: Final = 35.0
_MOST_HISTOGRAMS: Final = 4096
_END_S: Final = 0.2

_log = logging.getLogger("distdbg.agent")


class JobSums:
    """What all hosts have done. Thread-safe."""

    def __init__(self, own: str, run: str) -> None:
        self._own, self._run = own, run
        self._lock = threading.Lock()
        self._histograms = JobHistograms()
        self._wanted: tuple[str, ...] = ()
        self._awaited = 0
        """Other hosts of the job that were not met yet."""
        self._met: set[str] = set()
        self._began: float | None = None
        self._is_whole = False
        self._lost: frozenset[str] = frozenset()
        self._asked: dict[str, float] = {}
        """When each is asked again."""
        self._first: dict[str, float] = {}
        self._failed: dict[str, int] = {}
        """How often in a row each did not answer."""
        self._heard: dict[str, float] = {}
        self._addresses: dict[str, str] = {}
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def want(self, hosts: Mapping[str, bool], count: int) -> None:
        """These of `count` others are there now, and whether each is lost; the first begins the thread."""
        self._met.update(hosts)
        self._awaited = max(0, count - len(self._met))
        self._wanted = tuple(hosts)
        self._lost = frozenset(host for host, is_lost in hosts.items() if is_lost)
        if self._wanted and self._thread is None and not self._end.is_set():
            self._thread = threading.Thread(
                target=self._run_thread, name="distdbg-hosts", daemon=True
            )
            self._thread.start()

    def missing(self, now: float) -> int:
        """How many of them are lost, or have said nothing lately; `now` in monotonic seconds."""
        return self._awaited + sum(
            host in self._lost or now - self._heard.get(host, -_STALE_S) >= _STALE_S
            for host in self._wanted
        )

    def is_whole(self, now: float) -> bool:
        """Whether all of them have told something, or had time to; then it stays so.

        An agent that is started again has not asked anybody: sums that begin with those of its own host would
        rise by all that the others have ever done.
        """
        self._began = self._began or now
        if not self._is_whole:
            told = {*self._heard, *self._lost}
            is_all = not self._awaited and told.issuperset(self._wanted)
            self._is_whole = is_all or now - self._began >= _WHOLE_S
        return self._is_whole

    def addresses(self) -> dict[str, str]:
        """Where the other hosts that are there serve metrics, as far as they have said."""
        known = dict(self._addresses)
        return {host: known[host] for host in self._wanted if host in known}

    def take(self, host: str, histograms: Histograms, *, agent: str = "", attempt: int = 0) -> None:
        """What a host says now; see `JobHistograms.take`."""
        with self._lock:
            self._histograms.take(host, histograms, agent=agent, attempt=attempt)

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
            while not self._end.wait(self._fetch_due()):
                pass
        except Exception:  # noqa: BLE001  # an observer that fails says so once
            _log.exception("the sums of the job are those of host %s alone", self._own)

    def _fetch_due(self) -> float:
        """Ask who is due; how long to wait then."""
        for host in self._wanted:
            now = time.monotonic()
            if self._end.is_set():
                break
            if now < self._asked.get(host, 0.0) or host in self._lost:
                continue
            first = self._first.setdefault(host, now)
            least_s = max(_FIRST_EVERY_S, _HOST_S * len(self._wanted))
            every_s = min(_EVERY_S, max(least_s, (now - first) * _SHARE))
            self._failed[host] = (
                0 if self._fetch_totals(host) else min(self._failed.get(host, 0) + 1, 10)
            )
            rest_s = min(_REST_S, 2.0 ** self._failed[host])
            self._asked[host] = now + (rest_s if self._failed[host] else every_s)
        wanted = [host for host in self._wanted if host not in self._lost]
        due = min((self._asked.get(host, 0.0) for host in wanted), default=0.0)
        return min(1.0, max(0.1, due - time.monotonic()))

    def _fetch_totals(self, host: str) -> bool:
        try:
            with (
                AgentClient.at(agent_socket(self._run, self._own), timeout_s=_PATIENCE_S) as client,
                client.via(host) as other,
            ):
                told = other.ask("totals")
                about = other.ask("about")
            histograms = read_histograms(told["histograms"])
            agent, attempt = str(told.get("agent", ""))[:100], int(told.get("attempt", 0))
        except (DistError, OSError, ValueError, TypeError, KeyError) as error:
            _log.debug("host %s tells no numbers: %s", host, error)
            return False
        self.take(host, histograms, agent=agent, attempt=attempt)
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
