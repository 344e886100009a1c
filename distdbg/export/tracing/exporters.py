"""The exporters of OpenTelemetry, one per signal, over HTTP or gRPC; imported when they are needed.

They read by themselves: OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE,
_CLIENT_KEY, _CLIENT_CERTIFICATE, _INSECURE, and the same with _TRACES_, _METRICS_ and _LOGS_.

To encode spans takes the SDK three times as long as all else that is done for them. So a batch is encoded
here (export/otel/protobuf.py) and handed to the exporters where they would encode it; to send it, and again
if need be, is theirs. An exporter that has no such place gets the SDK's own spans.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from distdbg.errors import UsageError
from distdbg.export.metrics.model import Metrics
from distdbg.export.otel.model import LogData, SpanData
from distdbg.export.otel.recorded_ops import TracedRank
from distdbg.export.tracing.listening import Listener, listen
from distdbg.export.tracing.sender import SignalSender
from distdbg.export.tracing.settings import Protocol, Signal

Owned = tuple[TracedRank | None, SpanData | LogData]
"""With whose it is; None: the agent's."""
OwnedSpan = tuple[TracedRank | None, SpanData]
_MOST_RESOURCES: Final = 4096


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


def make_exporter(
    signal: Signal, protocol: Protocol, *, run: str, host: str, began_ns: int
) -> SignalSender:
    """For one signal. `began_ns`: since when metrics are counted, as wall time.

    ImportError, or whatever an exporter says of its variables.
    """
    listener = listen()  # what they have to say is said once by the sender, and not with each batch
    inner = _make_inner(signal, protocol)
    # What was imported for it stays: the garbage collector, whom spans wake often, need not look at it again.
    gc.freeze()
    if signal == "traces" and _takes_encoded(inner):
        return _Converted(inner, _encode_spans(run, host), listener)
    return _Converted(inner, _make_converter(signal, run, host, began_ns), listener)


class _Converted:
    """Implements Exporter: makes of plain values those of the SDK, in the thread that sends them."""

    def __init__(
        self, inner: Any, convert: Callable[[Sequence[Any]], Any], listener: Listener
    ) -> None:
        self._inner = inner
        self._convert = convert
        self._listener = listener
        self.why = ""

    def send(self, batch: Sequence[Any]) -> bool:
        converted = self._convert(batch)
        self._listener.begin()
        is_taken = not converted or self._inner.export(converted).name == "SUCCESS"
        words = self._listener.end()
        if is_taken:
            return True
        scheme, colon, rest = str(getattr(self._inner, "_endpoint", "it")).rpartition("://")
        address = scheme + colon + rest.rpartition("@")[2]  # a password may be before it
        self.why = f"{address} does not take them; {words or 'no answer in time'}"
        return False

    def shutdown(self) -> None:
        self._inner.shutdown()


def _make_inner(signal: Signal, protocol: Protocol) -> Any:
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


class _Encoded(Sequence[Any]):
    """A batch of spans, encoded."""

    def __init__(self, count: int, data: bytes) -> None:
        self._count = count
        self.data = data

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, _: Any) -> Any:
        raise TypeError("these spans are encoded")


def _takes_encoded(exporter: Any) -> bool:
    """Let the module of an exporter of spans pass on what is encoded; whether it has a place for that."""
    module = sys.modules[type(exporter).__module__]
    theirs = getattr(module, "encode_spans", None)
    if theirs is None:
        return False
    if getattr(theirs, "is_ours", False):
        return True
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def encode_spans(spans: Any) -> Any:
        if isinstance(spans, _Encoded):
            return ExportTraceServiceRequest.FromString(spans.data)
        return theirs(spans)

    encode_spans.is_ours = True  # type: ignore[attr-defined]
    module.encode_spans = encode_spans  # type: ignore[attr-defined]
    return True


def _encode_spans(run: str, host: str) -> Callable[[Sequence[OwnedSpan]], _Encoded]:
    from distdbg.export.otel.protobuf import to_request, to_resource
    from distdbg.export.otel.sdk import resource_of_agent, resource_of_rank

    resources: dict[TracedRank | None, bytes] = {
        None: to_resource(resource_of_agent(run, host).attributes)
    }

    def resource_of(rank: TracedRank | None) -> bytes:
        if rank not in resources:
            if len(resources) >= _MOST_RESOURCES:
                del resources[next(one for one in resources if one is not None)]
            assert rank is not None
            resources[rank] = to_resource(resource_of_rank(rank).attributes)
        return resources[rank]

    def encode(batch: Sequence[OwnedSpan]) -> _Encoded:
        return _Encoded(len(batch), to_request((resource_of(rank), span) for rank, span in batch))

    return encode


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
            if len(resources) >= _MOST_RESOURCES:
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
