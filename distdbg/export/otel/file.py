"""Spans as JSON lines, as the OpenTelemetry collector's file exporter writes them, and its receiver reads.

    {"resourceSpans":[{"resource":{..},"scopeSpans":[{"scope":{..},"spans":[{..},..]}]}]}
    {"resourceSpans":[..]}

A line is one ExportTraceServiceRequest of one rank, or of what was found. By OTLP's rules for JSON names are
in camel case, ids are hex, enumerations numbers, and integers of 64 bits text, for readers whose numbers are
doubles.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Protocol

import distdbg
from distdbg.export.findings import find_findings
from distdbg.export.otel import attributes as names
from distdbg.export.otel.log_records import spans_of_findings
from distdbg.export.otel.model import Attributes, SpanData, SpanKind, Value
from distdbg.export.otel.of_log import LogSpans, rank_facts
from distdbg.export.reading import OpenedRun

#: Ops in one line, which a reader takes as a whole. An op has up to three spans.
_MAX_OPS: Final = 500
_KINDS: Final = {SpanKind.INTERNAL: 1, SpanKind.PRODUCER: 4, SpanKind.CONSUMER: 5}
_ERROR: Final = 2
#: Sampled.
_FLAGS: Final = 1
_encode = json.JSONEncoder(separators=(",", ":")).encode


class LineSink(Protocol):
    """Takes one line after the other."""

    def write(self, line: bytes, /) -> object: ...


def write(run: OpenedRun, output: LineSink) -> None:
    """Write line after line as ranks are read; behind those of a start what was found."""
    for start in run.starts:
        name = start.session.run or run.name
        for log in start.read():
            rank = rank_facts(name, start.session, log)
            texts = LogSpans(start.session, log, rank).each_text(to_json)
            about = {name: value for name, value in rank.attributes().items() if value != ""}
            head, tail = _around(about)
            while batch := list(islice(texts, _MAX_OPS)):
                output.write((head + ",".join(batch) + tail).encode())
        session, end_ns = start.session, start.end_ns()
        found = list(spans_of_findings(name, session, find_findings(start), end_ns))
        if found:
            about = {names.INSTANCE: name, names.RUN: name, names.START: session.attempt}
            head, tail = _around(about)
            output.write((head + to_json(found) + tail).encode())


def to_json(spans: Iterable[SpanData]) -> str:
    """Some spans, with commas between them."""
    return ",".join(_encode(to_span(span)) for span in spans)


def _around(about: Attributes) -> tuple[str, str]:
    """What is before and behind the spans of a request; `about`: whose they are."""
    common = {names.SERVICE: "distdbg", names.DISTRO: "distdbg"}
    scope = {"name": "distdbg", "version": distdbg.__version__}
    resource = {"attributes": _attributes({**common, **about})}
    head = f'{{"resourceSpans":[{{"resource":{_encode(resource)},"scopeSpans":[{{"scope":{_encode(scope)},'
    return head + '"spans":[', "]}]}]}\n"


def to_span(span: SpanData) -> dict[str, Any]:
    """One span by the rules of OTLP's JSON."""
    made: dict[str, Any] = {
        "traceId": f"{span.trace_id:032x}",
        "spanId": f"{span.span_id:016x}",
        "flags": _FLAGS,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": _time(span.began_ns),
        "endTimeUnixNano": _time(span.ended_ns),
        "attributes": _attributes(span.attributes),
    }
    if span.parent_id:
        made["parentSpanId"] = f"{span.parent_id:016x}"
    if span.events:
        made["events"] = [
            {
                "timeUnixNano": _time(event.at_ns),
                "name": event.name,
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ]
    if span.links:
        made["links"] = [
            {
                "traceId": f"{link.trace_id:032x}",
                "spanId": f"{link.span_id:016x}",
                "attributes": _attributes({names.WHY: link.why}),
            }
            for link in span.links
        ]
    error = span.error
    made["status"] = {} if error is None else {"code": _ERROR, "message": _text(error)}
    return made


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": _text(value)}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value if math.isfinite(value) else str(value)}
        case _:
            return {"arrayValue": {"values": [_value(item) for item in value]}}


def _time(ns: int) -> str:
    return str(max(ns, 0))


def _text(text: str) -> str:
    """Names of files may be no UTF-8; protobuf takes nothing else."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
