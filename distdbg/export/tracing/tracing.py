"""What an agent owns of it: a thread that reads, one that sends, what is between them, and the end.

    tracing = Tracing(run, host, signals, environ=os.environ)
    tracing.begin(folder, attempt)       the ranks are started, or started again
    tracing.hear_end(end) ...            what the loop knows and no record says
    tracing.close(deadline_ns)

Methods are called by the agent's loop and never wait, but for `close`, which has a deadline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from distdbg import config
from distdbg.diagnose.finding import Finding
from distdbg.export.metrics.model import Metrics
from distdbg.export.otel.found import (
    find_op,
    log_of_end,
    log_of_finding,
    log_of_start,
    span_of_finding,
)
from distdbg.export.otel.model import LogData, SpanData
from distdbg.export.otel.recorded_ops import TracedRank
from distdbg.export.otel.sampling import read_sampler
from distdbg.export.tracing.exporters import Owned, check_installed, make_exporter
from distdbg.export.tracing.follower import MOST_ROWS
from distdbg.export.tracing.queues import (
    DROPPED,
    FAILED,
    MISSED,
    SENT,
    UNSAMPLED,
    AnyQueue,
    Latest,
    Queue,
)
from distdbg.export.tracing.records import HostRecords
from distdbg.export.tracing.sender import Sender, SignalSender
from distdbg.export.tracing.settings import Settings, Signal, read_settings
from distdbg.hosts.tail_sampling import KeptOp
from distdbg.record.ends import RankEnd

#: How often records are looked at, and how often while ranks are so fast that some would be missed.
_LOOK_S: Final = 0.5
_LEAST_LOOK_S: Final = 0.05
_MOST_LOOK_S: Final = 5.0
#: What one look should not cost: it keeps the loop waiting, which answers scrapes.
_DEAR_S: Final = 0.01
_LEAST_ROWS: Final = 128
#: The share of a core that looks may take, beside the spans that they make.
_SHARE: Final = 0.005
#: Of what is left before a deadline, how much is for the last look.
_LAST_LOOK: Final = 0.4
_MOST_EXEMPLARS: Final = 8
_MOST_KINDS: Final = 512

_log = logging.getLogger("distdbg.agent")


class Tracing:
    """Sends spans, log records and metrics of one run from one host."""

    def __init__(
        self,
        run: str,
        host: str,
        signals: frozenset[str],
        environ: Mapping[str, str],
        *,
        make: Callable[[Signal], SignalSender] | None = None,
    ) -> None:
        """UsageError when what sends is not installed. `make`: the exporters, instead of OpenTelemetry's."""
        self.run, self.host = run, host
        self.settings: Settings = read_settings(
            signals, environ, slow_s=config.read_float("DISTDBG_OTLP_SLOW_S", environ)
        )
        self._spans_per_s = config.read_float("DISTDBG_OTLP_SPANS_PER_S", environ)
        self._sampler, wrong = read_sampler(environ)
        for words in (*self.settings.wrong, *filter(None, (wrong,))):
            _log.warning("%s", words)
        if make is None:
            check_installed([self.settings.protocols[one] for one in self.settings.signals])
        self._news = threading.Condition()
        self._spans: Queue[Owned] = Queue(self.settings.spans, self._news)
        self._logs: Queue[Owned] = Queue(self.settings.logs, self._news)
        self._metrics: Latest[Callable[[], Metrics | None]] = Latest(self._news)
        self._queues: dict[Signal, AnyQueue] = {
            "traces": self._spans,
            "logs": self._logs,
            "metrics": self._metrics,
        }
        began_ns = time.time_ns()
        protocols = self.settings.protocols
        self._sender = Sender(
            self._queues,
            make
            or (
                lambda signal: make_exporter(
                    signal, protocols[signal], run=run, host=host, began_ns=began_ns
                )
            ),
            self._news,
        )
        self._exemplars: dict[tuple[str, str], tuple[tuple[int, str, float], ...]] = {}
        self._told: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._is_closing = False
        self._past = {UNSAMPLED: 0, MISSED: 0, DROPPED: 0}
        self._records: HostRecords | None = None
        self._until_ns = 0
        self._metrics_ns = 0
        self._findings = 0
        self._thread = threading.Thread(target=self._run, name="distdbg-traces", daemon=True)
        if self.settings.signals:
            self._sender.start()
            self._thread.start()

    # ------------------------------------------------------------------------------- from the loop

    def begin(self, folder: Path, attempt: int) -> None:
        """Follow the records in a folder from now on: the ranks are started, or started again."""
        self._told.append(lambda: self._follow(folder, attempt))
        if attempt and "logs" in self.settings.signals:
            log = log_of_start(attempt, time.time_ns())
            self._logs.put([(None, log)], time.monotonic_ns())
        self._wake.set()

    def hear_end(self, end: RankEnd) -> None:
        """A rank is gone."""
        self._told.append(lambda: self._on_end(end))
        self._wake.set()

    def hear_finding(self, finding: Finding, group: str) -> None:
        """A finding that is new, with the name of its group."""
        self._findings += 1
        number, wall_ns = self._findings, time.time_ns()
        self._told.append(lambda: self._on_finding(finding, group, number, wall_ns))
        self._wake.set()

    def hear_keeps(self, keeps: Sequence[KeptOp]) -> None:
        """Other hosts keep these ops."""
        if keeps:
            self._told.append(lambda: self._on_keeps(keeps))
            self._wake.set()

    def take_untold(self) -> list[KeptOp]:
        """The ops that this host keeps and that others are to keep as well."""
        records = self._records
        return [] if records is None else records.take_untold()

    def wants_metrics(self, now_ns: int) -> bool:
        """Whether metrics are due: `hear_metrics` follows."""
        if "metrics" not in self.settings.signals or now_ns < self._metrics_ns:
            return False
        self._metrics_ns = now_ns + self.settings.metrics_ns
        return True

    def hear_metrics(self, collect: Callable[[], Metrics | None]) -> None:
        """Send what this gives; it is called in the thread that sends."""
        if "metrics" in self.settings.signals:
            self._metrics.put(collect)

    @property
    def counts(self) -> dict[str, int]:
        """Spans by what became of them; of what is not a span yet, ops."""
        found = {SENT: 0, FAILED: 0, **self._past}
        for outcome, count in self._spans.counts.copy().items():
            found[outcome] = found.get(outcome, 0) + count
        records = self._records
        if records is not None:
            found[UNSAMPLED] += records.shared.unsampled
            found[MISSED] += records.shared.missed
            found[DROPPED] += records.shared.dropped
        return found

    @property
    def failures(self) -> dict[str, int]:
        """Batches that did not arrive, by signal."""
        return {signal: self._sender.failures[signal] for signal in sorted(self.settings.signals)}

    @property
    def queued(self) -> dict[str, int]:
        """What waits to be sent, by signal."""
        return {signal: len(self._queues[signal]) for signal in sorted(self.settings.signals)}

    def exemplars(self) -> dict[tuple[str, str], tuple[tuple[int, str, float], ...]]:
        """By kind and label of the group, newest ops that have a trace: duration, trace, wall time in s."""
        return self._exemplars.copy()

    def close(
        self, deadline_ns: int, last_metrics: Callable[[], Metrics | None] | None = None
    ) -> bool:
        """Look a last time, send what there is, and give up the rest; whether both threads have ended.

        `last_metrics` are asked for when all else was sent: they say what became of it.
        """
        if not self.settings.signals:
            return True
        left_ns = max(0, deadline_ns - time.monotonic_ns())
        self._until_ns = deadline_ns - int(left_ns * (1 - _LAST_LOOK))
        self._is_closing = True
        self._wake.set()
        self._thread.join(max(0.0, (self._until_ns - time.monotonic_ns()) / 1e9))
        with (
            self._news
        ):  # so that no time is left in which they would be sent before the last spans
            if last_metrics is not None:
                self.hear_metrics(last_metrics)
            self._sender.begin_close(deadline_ns)
        is_over = self._sender.close(deadline_ns)
        return is_over and not self._thread.is_alive()

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        pause_s = _LEAST_LOOK_S
        while True:
            self._wake.wait(pause_s)
            self._wake.clear()
            is_closing = self._is_closing
            began_ns = time.thread_time_ns()
            try:
                self._look(is_closing)
            except Exception:  # noqa: BLE001  # an observer that fails says so once, and is dropped
                _log.warning("records are followed no more: no spans are sent", exc_info=True)
                self._finish()
                return
            if is_closing:
                self._finish()
                return
            cost_s = (time.thread_time_ns() - began_ns - self._take_made_ns()) / 1e9
            self._pace(cost_s)
            is_fast = self._records is not None and self._records.is_fast
            least_s = _LEAST_LOOK_S if is_fast else _LOOK_S
            pause_s = min(max(least_s, cost_s / _SHARE), _MOST_LOOK_S)

    def _take_made_ns(self) -> int:
        """What spans have cost since this was asked last."""
        if self._records is None:
            return 0
        made_ns, self._records.shared.made_ns = self._records.shared.made_ns, 0
        return made_ns

    def _pace(self, cost_s: float) -> None:
        """A look that costs much takes in less the next time, so that the next is not far off."""
        records = self._records
        if records is None:
            return
        if cost_s > _DEAR_S:
            records.most_rows = max(records.most_rows // 2, _LEAST_ROWS)
        elif cost_s < _DEAR_S / 4:
            records.most_rows = min(2 * records.most_rows, MOST_ROWS)

    def _look(self, is_closing: bool) -> None:
        while self._told:
            self._told.popleft()()
        if self._records is None:
            return
        if is_closing:
            self._records.finish(time.monotonic_ns(), time.time_ns())
        else:
            self._records.look(time.monotonic_ns())

    def _finish(self) -> None:
        records, self._records = self._records, None
        if records is None:
            return
        self._past[UNSAMPLED] += records.shared.unsampled
        self._past[MISSED] += records.shared.missed
        self._past[DROPPED] += records.shared.dropped
        records.close()

    def _follow(self, folder: Path, attempt: int) -> None:
        now_ns, signals = time.monotonic_ns(), self.settings.signals
        if self._records is not None:
            self._records.finish(now_ns, time.time_ns())
        self._finish()
        self._records = HostRecords(
            folder=folder,
            host=self.host,
            run=self.run,
            start=attempt,
            sampler=self._sampler,
            slow_ns=self.settings.slow_ns,
            spans_per_s=self._spans_per_s,
            now_ns=now_ns,
            emit=self._emit if "traces" in signals else None,
            tell=self._tell if "logs" in signals else None,
            has_room=self._has_room,
            on_sampled=self._on_sampled,
        )

    def _has_room(self) -> bool:
        """The last quarter of the queue is for traces that have begun."""
        return len(self._spans) < self.settings.spans.most_queued * 3 // 4

    def _emit(self, rank: TracedRank, span: SpanData) -> None:
        self._spans.put([(rank, span)], time.monotonic_ns())

    def _tell(self, rank: TracedRank, log: LogData) -> None:
        self._logs.put([(rank, log)], time.monotonic_ns())

    def _on_sampled(
        self, kind: str, group: str, took_ns: int, trace_id: int, ended_ns: int
    ) -> None:
        key = kind, group
        if key not in self._exemplars and len(self._exemplars) >= _MOST_KINDS:
            return
        one = took_ns, f"{trace_id:032x}", ended_ns / 1e9
        self._exemplars[key] = (*self._exemplars.get(key, ())[1 - _MOST_EXEMPLARS :], one)

    def _on_end(self, end: RankEnd) -> None:
        if self._records is not None:
            self._records.on_end(end.rank, end.wall_ns, end.how)
        if "logs" in self.settings.signals:
            self._logs.put([(None, log_of_end(end))], time.monotonic_ns())

    def _on_keeps(self, keeps: Sequence[KeptOp]) -> None:
        if self._records is not None:
            for one in keeps:
                self._records.keep(*one)

    def _on_finding(self, finding: Finding, group: str, number: int, wall_ns: int) -> None:
        records = self._records
        if records is None:
            return
        trace_id, parent_id = find_op(self.run, records.start, group, finding.seq)
        log = log_of_finding(
            finding, trace_id=trace_id, parent_id=parent_id, wall_ns=wall_ns, number=number
        )
        now_ns = time.monotonic_ns()
        if "logs" in self.settings.signals:
            self._logs.put([(None, log)], now_ns)
        if trace_id and "traces" in self.settings.signals:
            records.keep(group, finding.seq, "found", is_wide=True)
            self._spans.put([(None, span_of_finding(log, parent_id=parent_id))], now_ns)
