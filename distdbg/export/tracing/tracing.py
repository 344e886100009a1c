"""What an agent owns of it: a thread that reads, one that sends, what is between them, and the end.

    tracing = Tracing(run, host, signals, environ=os.environ)
    tracing.put(RanksStarted(...))       what the loop knows and no record says: see trace_events
    tracing.close(deadline_ns)

Methods are called by the agent's loop and never wait, but for `close`, which has a deadline.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from distdbg import config
from distdbg.export.metrics.model import Metrics
from distdbg.export.otel.log_records import log_of_start
from distdbg.export.otel.sampling import read_sampler
from distdbg.export.tracing.exporters import Owned, check_installed, make_sender
from distdbg.export.tracing.follower import MAX_ROWS
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
from distdbg.export.tracing.trace_events import RanksStarted, SampledOp, TraceEvent
from distdbg.hosts.tail_sampling import KeptOp

#: How often records are looked at, and how often while ranks are so fast that some would be missed.
_LOOK_S: Final = 0.5
_MIN_LOOK_S: Final = 0.05
_MAX_LOOK_S: Final = 5.0
#: What one look should not cost: it keeps the loop waiting, which answers scrapes.
_DEAR_S: Final = 0.01
_MIN_ROWS: Final = 128
#: The share of a core that looks may take, beside the spans that they make.
_SHARE: Final = 0.005
#: The share of the time before a deadline that is for the last look.
_LAST_LOOK: Final = 0.4
_MAX_EXEMPLARS: Final = 8
_MAX_KINDS: Final = 512

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
                lambda signal: make_sender(
                    signal, protocols[signal], run=run, host=host, began_ns=began_ns
                )
            ),
            self._news,
        )
        self._exemplars: dict[tuple[str, str], tuple[tuple[int, str, float], ...]] = {}
        self._events: deque[TraceEvent] = deque()
        self._wake = threading.Event()
        self._is_closing = False
        self._past = {UNSAMPLED: 0, MISSED: 0, DROPPED: 0}
        self._records: HostRecords | None = None
        self._until_ns = 0
        self._metrics_ns = 0
        self._thread = threading.Thread(target=self._run, name="distdbg-traces", daemon=True)
        if self.settings.signals:
            self._sender.start()
            self._thread.start()

    # ------------------------------------------------------------------------------- from the loop

    def put(self, event: TraceEvent) -> None:
        """Take it in at the next look, which is soon."""
        self._events.append(event)
        self._wake.set()

    def take_unreported(self) -> list[KeptOp]:
        """The ops that this host keeps and that others are to keep as well."""
        records = self._records
        return [] if records is None else records.take_unreported()

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
        pause_s = _MIN_LOOK_S
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
            least_s = _MIN_LOOK_S if is_fast else _LOOK_S
            pause_s = min(max(least_s, cost_s / _SHARE), _MAX_LOOK_S)

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
            records.most_rows = max(records.most_rows // 2, _MIN_ROWS)
        elif cost_s < _DEAR_S / 4:
            records.most_rows = min(2 * records.most_rows, MAX_ROWS)

    def _look(self, is_closing: bool) -> None:
        while self._events:
            event = self._events.popleft()
            if isinstance(event, RanksStarted):
                self._follow(event)
            elif self._records is not None:
                self._records.hear(event)
        if self._records is None:
            return
        # The last quarter of the queue is for traces that have begun.
        self._records.room = self.settings.spans.most_queued * 3 // 4 - len(self._spans)
        if is_closing:
            self._records.finish(time.monotonic_ns(), time.time_ns())
        else:
            self._records.look(time.monotonic_ns())
        self._send_made(self._records)

    def _send_made(self, records: HostRecords) -> None:
        made, now_ns = records.take_made(), time.monotonic_ns()
        if made.spans:
            self._spans.put(made.spans, now_ns)
        if made.logs:
            self._logs.put(made.logs, now_ns)
        for one in made.sampled:
            self._keep_exemplar(one)

    def _finish(self) -> None:
        records, self._records = self._records, None
        if records is None:
            return
        self._send_made(records)
        self._past[UNSAMPLED] += records.shared.unsampled
        self._past[MISSED] += records.shared.missed
        self._past[DROPPED] += records.shared.dropped
        records.close()

    def _follow(self, started: RanksStarted) -> None:
        now_ns, signals = time.monotonic_ns(), self.settings.signals
        if self._records is not None:
            self._records.finish(now_ns, time.time_ns())
        self._finish()
        if started.attempt and "logs" in signals:
            self._logs.put([(None, log_of_start(started.attempt, started.wall_ns))], now_ns)
        self._records = HostRecords(
            folder=started.folder,
            host=self.host,
            run=self.run,
            start=started.attempt,
            sampler=self._sampler,
            slow_ns=self.settings.slow_ns,
            spans_per_s=self._spans_per_s,
            now_ns=now_ns,
            has_spans="traces" in signals,
            has_logs="logs" in signals,
        )

    def _keep_exemplar(self, op: SampledOp) -> None:
        key = op.kind, op.group
        if key not in self._exemplars and len(self._exemplars) >= _MAX_KINDS:
            return
        one = op.took_ns, f"{op.trace_id:032x}", op.ended_ns / 1e9
        self._exemplars[key] = (*self._exemplars.get(key, ())[1 - _MAX_EXEMPLARS :], one)
