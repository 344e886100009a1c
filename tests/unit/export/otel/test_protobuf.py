"""Spans that are encoded here are, once read, those that the SDK encodes."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from distdbg.export.otel.model import SpanData, SpanEvent, SpanKind, SpanLink
from distdbg.export.otel.protobuf import to_request, to_resource
from distdbg.export.otel.recorded_ops import TracedRank
from distdbg.export.otel.sdk import resource_of_rank, to_sdk

RANKS = [TracedRank(run="r", rank=rank, world_size=2, host="n1", pid=7 + rank) for rank in range(2)]
RESOURCES = [resource_of_rank(rank) for rank in RANKS]


def encode(*spans: SpanData) -> ExportTraceServiceRequest:
    data = to_request((to_resource(RESOURCES[one.rank].attributes), one) for one in spans)
    return ExportTraceServiceRequest.FromString(data)


def make(rank: int = 0, **more: object) -> SpanData:
    values = {"name": "all_reduce rank 0", "trace_id": 1, "span_id": 2, "began_ns": 10}
    return SpanData(**{**values, "ended_ns": 20, "rank": rank, **more})


def test_spans_of_two_ranks_are_those_of_the_sdk() -> None:
    spans = [
        make(),
        make(1, name="ü", parent_id=2**64 - 1, trace_id=2**128 - 1),
        make(
            kind=SpanKind.CONSUMER,
            attributes={
                "a": "b",
                "none": 0,
                "one": 1,
                "is": True,
                "is not": False,
                "low": -1,
                "high": 2**63 - 1,
                "half": 0.5,
                "shapes": ("[4, 1]", "[]"),
                "ranks": (3, 2**40),
                "long": "x" * 300,
            },
        ),
        make(
            1,
            kind=SpanKind.PRODUCER,
            events=(
                SpanEvent(name="started", at_ns=15),
                SpanEvent(name="exception", at_ns=19, attributes={"exception.type": "OpTimeout"}),
            ),
            links=(SpanLink(trace_id=3, span_id=4, why="send"),),
            error="it failed",
        ),
        make(error=""),
    ]
    assert encode(*spans) == encode_spans([to_sdk(one, RESOURCES[one.rank]) for one in spans])


def test_a_number_and_a_truth_of_one_name_are_told_apart() -> None:
    spans = [make(attributes={"x": value}) for value in (1, True, 1.0, 0, False, -0.0)]
    assert encode(*spans) == encode_spans([to_sdk(one, RESOURCES[0]) for one in spans])


def test_what_the_protocol_has_no_room_for_is_left_out() -> None:
    (found,) = encode(
        make(began_ns=-5, ended_ns=2**70, attributes={"x": 2**63, "y": 3}, name="a\udcff")
    ).resource_spans
    (span,) = found.scope_spans[0].spans
    assert [one.key for one in span.attributes] == ["y"]
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (0, 2**63 - 1)
    assert span.name == "a?"
