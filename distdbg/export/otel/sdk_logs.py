"""Log records as opentelemetry-sdk's, for its exporters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from distdbg.export.otel.model import LogData, OtelSeverity
from distdbg.export.otel.sdk import SCOPE, fitting, fitting_text

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SEVERITIES: Final = {
    OtelSeverity.INFO: SeverityNumber.INFO,
    OtelSeverity.WARN: SeverityNumber.WARN,
    OtelSeverity.ERROR: SeverityNumber.ERROR,
    OtelSeverity.FATAL: SeverityNumber.FATAL,
}


def to_sdk_log(log: LogData, resource: Resource, observed_ns: int) -> ReadableLogRecord:
    """Make a log record as exporters take it. `observed_ns`: when the agent has seen it."""
    context = Context()
    if log.trace_id:
        where = SpanContext(log.trace_id, log.span_id, is_remote=True, trace_flags=_SAMPLED)
        context = set_span_in_context(NonRecordingSpan(where), context)
    record = LogRecord(
        timestamp=log.at_ns,
        observed_timestamp=observed_ns,
        context=context,
        severity_text=log.level.upper(),
        severity_number=_SEVERITIES[log.level],
        body=fitting_text(log.body),
        attributes=fitting(log.attributes),
        event_name=log.event,
    )
    return ReadableLogRecord(record, resource, SCOPE)
