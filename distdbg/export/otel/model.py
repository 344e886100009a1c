"""Spans and log records as plain values; times are wall nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Value = str | int | float | bool | tuple[str, ...] | tuple[int, ...]
Attributes = Mapping[str, Value]


class SpanKind(StrEnum):
    """OpenTelemetry's words for which end of a message a span is."""

    INTERNAL = "internal"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class OtelSeverity(StrEnum):
    """OpenTelemetry's severities that are used here."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLink:
    """A link to a span of another trace, or of this one."""

    trace_id: int
    span_id: int
    why: str
    """What the other span is to this one: 'send', 'op', 'caller'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """A moment within a span."""

    name: str
    at_ns: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanData:
    name: str
    trace_id: int
    span_id: int
    parent_id: int = 0
    """0: the root of its trace."""
    kind: SpanKind = SpanKind.INTERNAL
    began_ns: int
    ended_ns: int
    rank: int
    """The rank whose span it is; the agent of this rank sends a root span."""
    attributes: Attributes = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str | None = None
    """What failed, in one line; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogData:
    at_ns: int
    level: OtelSeverity
    body: str
    event: str
    """The name of what happened: 'distdbg.finding'."""
    attributes: Attributes = field(default_factory=dict)
    trace_id: int = 0
    span_id: int = 0
    rank: int | None = None
    """None: of the agent."""
