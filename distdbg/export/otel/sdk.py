"""Spans and log records as opentelemetry-sdk's, for its exporters. All that imports OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from distdbg import __version__
from distdbg.export.otel import attributes as names
from distdbg.export.otel import model
from distdbg.export.otel.model import SpanData, Value
from distdbg.export.otel.recorded_ops import TracedRank

SCOPE: Final = InstrumentationScope("distdbg", __version__)
_SDK_VERSION: Final = version("opentelemetry-sdk")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_KINDS: Final = {
    model.SpanKind.INTERNAL: SpanKind.INTERNAL,
    model.SpanKind.PRODUCER: SpanKind.PRODUCER,
    model.SpanKind.CONSUMER: SpanKind.CONSUMER,
}
_MAX: Final = 2**63 - 1
_UNSET: Final = Status(StatusCode.UNSET)


class _Known(Resource):
    """Equal to itself alone: exporters sort spans by it, and the hash of all that it has is slow."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def make_resource(attributes: Mapping[str, Value]) -> Resource:
    """A resource with these attributes; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before."""
    given = OTELResourceDetector().detect().attributes
    sdk = {
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": _SDK_VERSION,
    }
    return _Known({**sdk, names.SERVICE: "distdbg", **attributes, **given})


def resource_of_rank(rank: TracedRank) -> Resource:
    """What says whose spans they are."""
    return make_resource({**rank.attributes(), names.DISTRO: "distdbg"})


def resource_of_agent(run: str, host: str) -> Resource:
    """What says that it is the agent of a host which speaks."""
    return make_resource(
        {
            names.INSTANCE: f"{run}/{host}",
            names.HOST: host,
            names.PID: os.getpid(),
            names.DISTRO: "distdbg",
            names.DISTRO_VERSION: __version__,
            names.RUN: run,
        }
    )


def to_sdk(span: SpanData, resource: Resource) -> ReadableSpan:
    """Make a span as exporters take it."""
    return ReadableSpan(
        name=fitting_text(span.name),
        context=_context(span.trace_id, span.span_id, is_remote=False),
        parent=_context(span.trace_id, span.parent_id, is_remote=True) if span.parent_id else None,
        resource=resource,
        attributes=fitting(span.attributes),
        events=[
            Event(event.name, attributes=fitting(event.attributes), timestamp=_time(event.at_ns))
            for event in span.events
        ],
        links=[
            Link(_context(link.trace_id, link.span_id, is_remote=True), {names.WHY: link.why})
            for link in span.links
        ],
        kind=_KINDS[span.kind],
        status=_UNSET if span.error is None else Status(StatusCode.ERROR, fitting_text(span.error)),
        start_time=_time(span.began_ns),
        end_time=_time(span.ended_ns),
        instrumentation_scope=SCOPE,
    )


def _context(trace_id: int, span: int, *, is_remote: bool) -> SpanContext:
    return SpanContext(trace_id, span, is_remote=is_remote, trace_flags=_SAMPLED)


def _time(wall_ns: int) -> int:
    """Cut a time to what the protocol has room for: a damaged record may say anything."""
    return min(max(wall_ns, 0), _MAX)


def fitting(attributes: model.Attributes) -> dict[str, Value]:
    """Without numbers that the protocol has no room for, and in text that it can say."""
    return {
        name: fitting_text(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if not isinstance(value, int) or -_MAX <= value <= _MAX
    }


def fitting_text(value: str) -> str:
    """Put a question mark for what UTF-8 cannot say: the encoder would refuse the whole batch."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
