"""Plain values as the SDK's, encoded by OpenTelemetry and read by its definitions."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from distdbg.export.metrics.families import BY_NAME, FAMILIES
from distdbg.export.metrics.model import Exemplar, Histogram, Metrics, Sample, Samples
from distdbg.export.otel.attributes import ATTRIBUTES
from distdbg.export.otel.ids import root_span_id
from distdbg.export.otel.metric_names import metric_name
from distdbg.export.otel.model import LogData, OtelSeverity, SpanData, SpanEvent, SpanKind, SpanLink
from distdbg.export.otel.recorded_ops import TracedRank
from distdbg.export.otel.sdk import resource_of_agent, resource_of_rank, to_sdk
from distdbg.export.otel.sdk_logs import to_sdk_log
from distdbg.export.otel.sdk_metrics import to_sdk_metrics

RANK = TracedRank(run="r", rank=3, world_size=4, host="n1", pid=7)


def test_a_span_arrives_as_it_was_made() -> None:
    made = SpanData(
        name="recv rank 3 from 0",
        trace_id=1 << 120,
        span_id=2,
        parent_id=3,
        kind=SpanKind.CONSUMER,
        began_ns=10,
        ended_ns=20,
        rank=3,
        attributes={
            "distdbg.rank": 3,
            "distdbg.op.inputs": ("[4]",),
            "distdbg.op.late_peer_s": 0.5,
        },
        events=(SpanEvent(name="started", at_ns=15),),
        links=(SpanLink(trace_id=1 << 120, span_id=3, why="send"),),
        error="it failed",
    )
    request = encode_spans([to_sdk(made, resource_of_rank(RANK))] * 2)
    (resource,) = request.resource_spans
    (span, _) = resource.scope_spans[0].spans
    assert resource.scope_spans[0].scope.name == "distdbg"
    assert span.trace_id == (1 << 120).to_bytes(16, "big")
    assert (span.span_id, span.parent_span_id) == ((2).to_bytes(8, "big"), (3).to_bytes(8, "big"))
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (10, 20)
    assert (span.kind, span.status.code, span.status.message) == (5, 2, "it failed")
    assert span.events[0].time_unix_nano == 15
    assert span.links[0].attributes[0].value.string_value == "send"


def test_what_the_protocol_has_no_room_for_is_left_out_and_costs_no_other_span() -> None:
    odd, text = SpanEvent(name="e", at_ns=2**70, attributes={"z": 2**64}), "a\udcff"
    made = SpanData(
        name=text,
        trace_id=1,
        span_id=2,
        began_ns=-5,
        ended_ns=2**70,
        rank=3,
        attributes={"x": 2**63, "y": 3, "file": text, "is": True},
        events=(odd,),
        error=text,
    )
    request = encode_spans([to_sdk(made, resource_of_rank(RANK))])
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert [one.key for one in span.attributes] == ["y", "file", "is"]
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (0, 2**63 - 1)
    assert [span.name, span.status.message, span.attributes[1].value.string_value] == ["a?"] * 3
    assert not span.events[0].attributes


def test_what_the_environment_says_of_the_service_goes_before(monkeypatch) -> None:
    assert resource_of_rank(RANK).attributes["service.name"] == "distdbg"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,host.name=b,team=c")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "d")
    values = resource_of_rank(RANK).attributes
    assert (values["service.name"], values["host.name"], values["team"]) == ("d", "b", "c")


def test_a_log_record_has_the_ids_of_its_op_or_none() -> None:
    about = LogData(at_ns=9, level=OtelSeverity.ERROR, body="it", event="e", trace_id=5, span_id=6)
    alone = LogData(at_ns=9, level=OtelSeverity.INFO, body="it", event="e")
    resource = resource_of_agent("r", "n1")
    request = encode_logs([to_sdk_log(one, resource, 11) for one in (about, alone)])
    first, second = request.resource_logs[0].scope_logs[0].log_records
    assert first.trace_id == (5).to_bytes(16, "big")
    assert (first.severity_text, first.severity_number, first.event_name) == ("ERROR", 17, "e")
    assert (second.trace_id, second.severity_number) == (b"", 9)


def test_a_log_record_says_what_it_can_of_a_text_that_is_no_utf_8() -> None:
    text = "cannot read \udcff"
    odd = LogData(at_ns=9, level=OtelSeverity.INFO, body=text, event="e", attributes={"x": text})
    request = encode_logs([to_sdk_log(odd, resource_of_agent("r", "n1"), 11)])
    (record,) = request.resource_logs[0].scope_logs[0].log_records
    said = [record.body.string_value, record.attributes[0].value.string_value]
    assert said == ["cannot read ?"] * 2


def test_metrics_are_the_same_as_for_prometheus() -> None:
    buckets = [0] * 40
    buckets[20], buckets[29] = 3, 1
    trace = "0" * 31 + "7"
    histogram = Histogram(
        ("all_reduce", "dp"), tuple(buckets), 10**9, (Exemplar(2**20, trace, 5.0),)
    )
    metrics = Metrics(
        run="r",
        host="n1",
        families=(
            Samples(BY_NAME["distdbg_ops_total"], (Sample(("all_reduce", "dp", "f4"), 7),)),
            Samples(BY_NAME["distdbg_rank_up"], (Sample(("3",), 1),)),
            Samples(BY_NAME["distdbg_op_duration_seconds"], (), (histogram,)),
            Samples(BY_NAME["distdbg_findings"]),
        ),
    )
    resource = resource_of_agent("r", "n1")
    request = encode_metrics(to_sdk_metrics(metrics, resource, began_ns=1, now_ns=2))
    found = {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}
    assert list(found) == ["distdbg.ops", "distdbg.rank.up", "distdbg.op.duration"]
    ops = found["distdbg.ops"].sum
    assert ops.is_monotonic
    (point,) = ops.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (7, 1, 2)
    values = {one.key: one.value.string_value for one in point.attributes}
    assert values == {"run": "r", "host": "n1", "kind": "all_reduce", "group": "dp", "dtype": "f4"}
    assert found["distdbg.rank.up"].gauge.data_points[0].as_int == 1
    (point,) = found["distdbg.op.duration"].histogram.data_points
    assert (point.count, sum(point.bucket_counts), point.sum) == (4, 4, 1.0)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert not point.HasField("min")
    assert point.exemplars[0].span_id == root_span_id(7).to_bytes(8, "big")


def test_names_are_all_different() -> None:
    assert len({metric_name(family) for family in FAMILIES}) == len(FAMILIES)
    assert len({one.name for one in ATTRIBUTES}) == len(ATTRIBUTES)
