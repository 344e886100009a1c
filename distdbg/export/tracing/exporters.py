"""The exporters of OpenTelemetry, one per signal, over HTTP or gRPC; imported when they are needed.

They read by themselves: OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE,
_CLIENT_KEY, _CLIENT_CERTIFICATE, _INSECURE, and the same with _TRACES_, _METRICS_ and _LOGS_.

What they send are the SDK's own spans, metrics and log records (docs/decisions/0045), made in the thread that
sends them. They return only whether a batch was taken, and log the reason with each try: `Listener` hears it.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from distdbg.errors import UsageError
from distdbg.export.metrics.model import Metrics
from distdbg.export.otel.model import LogData, SpanData
from distdbg.export.otel.recorded_ops import TracedRank
from distdbg.export.tracing.sender import SignalSender
from distdbg.export.tracing.settings import Protocol, Signal
from distdbg.record.printable import printable

Owned = tuple[TracedRank | None, SpanData | LogData]
"""With whose it is; None: the agent's."""
_MAX_RESOURCES: Final = 4096


_OURS: Final = "opentelemetry"
_EXPORTERS: Final = ("opentelemetry.exporter", "opentelemetry.sdk")
_MAX_LETTERS: Final = 400
_MAX_SAID: Final = 32
_SILENCE: Final = "no answer until the end of the job"
_log = logging.getLogger("distdbg.agent")


def check_installed(protocols: Sequence[Protocol]) -> None:
    """UsageError when what sends is not installed; nothing is imported."""
    from importlib.util import find_spec

    for protocol in protocols:
        way = "grpc" if protocol == "grpc" else "http"
        try:
            found = find_spec(f"opentelemetry.exporter.otlp.proto.{way}")
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise UsageError(
                f"OTLP over {protocol} needs opentelemetry-exporter-otlp-proto-{way}, "
                "which is not installed",
                hint='pip install "distdbg[otlp]"',
            )


def make_sender(
    signal: Signal, protocol: Protocol, *, run: str, host: str, began_ns: int
) -> SignalSender:
    """Make what sends one signal. `began_ns`: since when metrics are counted, as wall time.

    Raises ImportError, or whatever an exporter says of its variables.
    """
    listener = listen()  # the sender reports a failure once; exporters would with each batch
    exporter = _make_exporter(signal, protocol)
    # What was imported for it stays: the garbage collector, whom spans wake often, need not look at it again.
    gc.freeze()
    return _SdkSender(exporter, _make_converter(signal, run, host, began_ns), listener)


class _SdkSender:
    """A `SignalSender` by one of the SDK's exporters, whose values it makes in the thread that sends them."""

    def __init__(
        self, exporter: Any, to_sdk: Callable[[Sequence[Any]], Any], listener: Listener
    ) -> None:
        self._exporter = exporter
        self._to_sdk = to_sdk
        self._listener = listener
        self._is_shut = False
        self.why = ""

    def send(self, batch: Sequence[Any]) -> bool:
        scheme, colon, rest = str(getattr(self._exporter, "_endpoint", "it")).rpartition("://")
        address = scheme + colon + rest.rpartition("@")[2]  # a password may be before it
        refusal = f"{address} does not take them"
        self.why = f"{refusal}; {_SILENCE}"
        values = self._to_sdk(batch)
        self._listener.begin(lambda: self._is_shut)
        is_taken = not values or self._exporter.export(values).name == "SUCCESS"
        words = self._listener.end()
        if is_taken:
            self.why = ""
        elif words or not self._is_shut:
            self.why = f"{refusal}; {words or 'no answer in time'}"
        return is_taken

    def shutdown(self) -> None:
        self._is_shut = True
        self._exporter.shutdown()


def _make_exporter(signal: Signal, protocol: Protocol) -> Any:
    if protocol == "grpc":
        if signal == "traces":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        if signal == "logs":
            from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter

            return OTLPLogExporter()
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter()
    from distdbg.export.tracing.session import BoundedSession

    session = BoundedSession()
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.http import trace_exporter

        return trace_exporter.OTLPSpanExporter(session=session)
    if signal == "logs":
        from opentelemetry.exporter.otlp.proto.http import _log_exporter

        return _log_exporter.OTLPLogExporter(session=session)
    from opentelemetry.exporter.otlp.proto.http import metric_exporter

    return metric_exporter.OTLPMetricExporter(session=session)


def _make_converter(
    signal: Signal, run: str, host: str, began_ns: int
) -> Callable[[Sequence[Any]], Any]:
    from distdbg.export.otel.sdk import resource_of_agent, resource_of_rank, to_sdk

    agent = resource_of_agent(run, host)
    resources: dict[TracedRank, Any] = {}

    def resource_of(rank: TracedRank | None) -> Any:
        if rank is None:
            return agent
        if rank not in resources:
            if len(resources) >= _MAX_RESOURCES:
                resources.clear()
            resources[rank] = resource_of_rank(rank)
        return resources[rank]

    if signal == "traces":
        return lambda batch: [to_sdk(span, resource_of(rank)) for rank, span in batch]
    if signal == "logs":
        from distdbg.export.otel.sdk_logs import to_sdk_log

        return lambda batch: [
            to_sdk_log(log, resource_of(rank), time.time_ns()) for rank, log in batch
        ]
    from distdbg.export.otel.sdk_metrics import to_sdk_metrics

    def convert(batch: Sequence[Callable[[], Metrics | None]]) -> Any:
        metrics = batch[0]()
        return metrics and to_sdk_metrics(metrics, agent, began_ns=began_ns, now_ns=time.time_ns())

    return convert


class Listener(logging.Handler):
    """Hears what is logged in the thread that sends."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._local = threading.local()
        self._said: set[str] = set()

    def begin(self, is_cut_off: Callable[[], bool] = lambda: False) -> None:
        """From now on this thread sends a batch; what is logged after it is cut off is no reason."""
        self._local.words, self._local.is_cut_off = "", is_cut_off

    def end(self) -> str:
        """Why it was not taken, by the first that was said; '' for nothing."""
        words: str = getattr(self._local, "words", "")
        self._local.words = None
        return words

    def emit(self, record: logging.LogRecord) -> None:
        try:
            words = printable(" ".join(record.getMessage().split()))[:_MAX_LETTERS]
        except Exception:  # noqa: BLE001  # a record of somebody else's that cannot be put into words
            return
        is_of_exporter = record.name.startswith(_EXPORTERS)
        if is_of_exporter and getattr(self._local, "words", None) is not None:
            if not self._local.is_cut_off():
                self._local.words = self._local.words or words
        elif not is_of_exporter and words not in self._said and len(self._said) < _MAX_SAID:
            self._said.add(words)
            _log.warning("%s", words)


def listen() -> Listener:
    """The one of this process; from now on OpenTelemetry says nothing by itself."""
    logger = logging.getLogger(_OURS)
    for handler in logger.handlers:
        if isinstance(handler, Listener):
            return handler
    listener = Listener()
    logger.addHandler(listener)
    logger.propagate = False
    return listener
