"""Spans as JSON lines, decoded with the official protobuf definitions."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import ParseDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from distdbg.export.findings import find_findings
from distdbg.export.otel.file import write
from distdbg.export.otel.ids import COLLECTIVE, Numbering, hex_ids, root_span_id, span_id
from distdbg.export.otel.log_records import spans_of_findings
from distdbg.export.otel.of_log import LogSpans, rank_facts
from distdbg.export.otel.sdk import resource_of_rank, to_sdk
from distdbg.export.reading import OpenedRun
from distdbg.record.format import Status
from tests.unit.export.made_run import WALL_NS, MadeRun, every_kind

if TYPE_CHECKING:
    import pytest

_IDS = ("traceId", "spanId", "parentSpanId")


def lines_of(run: OpenedRun) -> list[dict[str, Any]]:
    output = io.BytesIO()
    write(run, output)
    assert output.getvalue().endswith(b"\n") or not output.getvalue()
    return [json.loads(line) for line in output.getvalue().splitlines()]


def to_protobuf_json(value: Any) -> Any:
    """OTLP's ids are hex where protobuf's own JSON has base64; all else is the same."""
    if isinstance(value, list):
        return [to_protobuf_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode()
        if key in _IDS
        else to_protobuf_json(item)
        for key, item in value.items()
    }


def decode(run: OpenedRun) -> list[ExportTraceServiceRequest]:
    return [
        ParseDict(to_protobuf_json(line), ExportTraceServiceRequest()) for line in lines_of(run)
    ]


def spans_of(run: OpenedRun) -> Iterator[Any]:
    for request in decode(run):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                yield from scope.spans


def everything(tmp_path: Path) -> OpenedRun:
    run = every_kind()
    run.op(0, "all_reduce", has_ended=False)
    words = '{"type": "OpTimeout", "what": "all_reduce waited"}'
    run.op(1, "all_reduce", has_ended=False, status=Status.TIMEOUT, error=words, comm="grads")
    build = run.builds[2]
    begin = build.begin_span("forward", at_ns=10**6)
    run.op(2, "barrier")
    build.mark("loss", 0.5, at_ns=2 * 10**6)
    build.end_span(begin, at_ns=3 * 10**6)
    for rank in (0, 3):
        run.builds[rank].context(7 << 90 | rank, 2**63 | rank)
        run.op(rank, "barrier")
        run.op(rank, "all_reduce", has_ended=False)
    return run.open(tmp_path)


def test_each_span_is_what_the_official_encoder_makes_of_it(tmp_path: Path) -> None:
    opened = everything(tmp_path)
    found = list(spans_of(opened))
    expected = []
    for start in opened.starts:
        for log in start.read():
            rank = rank_facts(opened.name, start.session, log)
            resource = resource_of_rank(rank)
            spans = [to_sdk(span, resource) for span in LogSpans(start.session, log, rank).each()]
            encoded = encode_spans(spans)
            expected += encoded.resource_spans[0].scope_spans[0].spans
        findings = find_findings(start)
        reported = list(spans_of_findings(opened.name, start.session, findings, start.end_ns()))
        encoded = encode_spans([to_sdk(span, resource) for span in reported])
        expected += encoded.resource_spans[0].scope_spans[0].spans
    assert reported
    assert len(found) == len(expected) > 80
    for one, other in zip(found, expected, strict=True):
        # The encoder tells also whether parents and links are of another process.
        one.flags = other.flags
        for mine, official in zip(one.links, other.links, strict=True):
            mine.flags = official.flags
        assert one == other


def test_the_resource_says_whose_spans_they_are(tmp_path: Path) -> None:
    opened = every_kind().open(tmp_path)
    found = [
        {a.key: a.value for a in request.resource_spans[0].resource.attributes}
        for request in decode(opened)
    ]
    assert [values["distdbg.rank"].int_value for values in found] == [0, 1, 2, 3]
    assert found[1]["service.name"].string_value == "distdbg"
    assert found[1]["service.instance.id"].string_value == "made/1"


def test_ids_are_those_that_an_agent_sends(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.all("all_reduce", op="SUM")
    opened = run.open(tmp_path)
    spans = list(spans_of(opened))
    (group,) = opened.starts[0].session.groups
    expected = Numbering("made", 0, group.name, COLLECTIVE).trace_id(1)
    assert {span.trace_id for span in spans} == {expected.to_bytes(16, "big")}
    roots = [span for span in spans if not span.parent_span_id]
    assert [span.name for span in roots] == ["all_reduce #1 on world"]
    assert {span.parent_span_id for span in spans} == {b"", roots[0].span_id}
    assert spans[0].start_time_unix_nano == WALL_NS + 10_000


def test_many_ids_at_once_are_those_made_one_by_one() -> None:
    numbering = Numbering("0412", 1, "dp", COLLECTIVE)
    traces, own, roots, callers = hex_ids([numbering.digest(seq) for seq in range(9)], 3)
    ids = [numbering.trace_id(seq) for seq in range(9)]
    assert traces == [f"{one:032x}" for one in ids]
    assert own == [f"{span_id(one, 3):016x}" for one in ids]
    assert roots == [f"{root_span_id(one):016x}" for one in ids]
    assert callers == [f"{span_id(one, 3, 'caller'):016x}" for one in ids]
    assert hex_ids([], 0) == ([], [], [], [])


def test_both_ends_of_a_message_are_one_trace(tmp_path: Path) -> None:
    run = MadeRun(3)
    run.send(1, 2, tag=3)
    sent, received = spans_of(run.open(tmp_path))
    assert sent.trace_id == received.trace_id
    assert received.parent_span_id == sent.span_id
    assert [link.span_id for link in received.links] == [sent.span_id]


def test_a_line_holds_so_many_spans_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.export.otel.file._MAX_OPS", 7)
    counts = [
        len(line["resourceSpans"][0]["scopeSpans"][0]["spans"])
        for line in lines_of(everything(tmp_path))
    ]
    assert 7 <= max(counts) <= 14
    assert sum(counts) > 80


def test_integers_are_text_and_ids_are_hex(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.op(0, "barrier")
    (line,) = lines_of(run.open(tmp_path))
    span = line["resourceSpans"][0]["scopeSpans"][0]["spans"][-1]
    assert span["startTimeUnixNano"] == str(WALL_NS + 10_000)
    assert len(span["traceId"]) == 32
    assert len(span["spanId"]) == 16
    assert {"key": "distdbg.seq", "value": {"intValue": "1"}} in span["attributes"]


def test_blocks_of_any_name_are_those_of_the_ops_within(tmp_path: Path) -> None:
    run = MadeRun(1)
    words = ["step 1", 'a "b"\n%s\\', "\u00fc\U0001f600", "", "\x00"]
    for word in words:
        begin = run.builds[0].begin_span(word, at_ns=10**6)
        run.op(0, "barrier")
        run.builds[0].end_span(begin, at_ns=2 * 10**6)
        run.op(0, "barrier")
    ops = [span for span in spans_of(run.open(tmp_path)) if span.name == "barrier rank 0"]
    found = [{a.key: a.value.string_value for a in span.attributes} for span in ops]
    assert [one.get("distdbg.region", "") for one in found[::2]] == words
    assert not any("distdbg.region" in one for one in found[1::2])


def test_an_op_within_a_span_of_the_programs_own_is_a_child_of_it_and_linked(
    tmp_path: Path,
) -> None:
    run = MadeRun(1)
    build = run.builds[0]
    run.op(0, "barrier")
    for step in (1, 2):
        build.context(7 << 90 | step, 0xFEED << 40 | step)
        begin = build.begin_span("step", at_ns=10**6)
        run.op(0, "barrier")
        build.end_span(begin, at_ns=2 * 10**6)
        run.op(0, "barrier")
    build.context(9 << 90, 1, is_sampled=False)  # it has no span anywhere that could be a parent
    run.op(0, "barrier")
    build.context(0, 0)
    run.op(0, "barrier")
    spans = list(spans_of(run.open(tmp_path)))
    callers = [span for span in spans if span.name == "barrier"]
    assert [int.from_bytes(one.trace_id, "big") & 3 for one in callers] == [1, 1, 2, 2]
    assert [int.from_bytes(one.parent_span_id, "big") & 3 for one in callers] == [1, 1, 2, 2]
    own = {span.span_id: span for span in spans if span.name == "barrier rank 0"}
    assert len(own) == 7
    for caller in callers:
        one = own.pop(caller.links[0].span_id)
        assert one.links[0].span_id == caller.span_id
        assert one.links[0].trace_id == caller.trace_id
        assert caller.start_time_unix_nano == one.start_time_unix_nano
    assert not any(one.links for one in own.values())


def test_a_block_that_never_ended_is_there_for_those_within_it(tmp_path: Path) -> None:
    run = MadeRun(1)
    build = run.builds[0]
    build.begin_span("step", at_ns=1_000)
    build.mark("loss", 0.5, at_ns=2_000)
    run.op(0, "barrier")
    spans = {span.name: span for span in spans_of(run.open(tmp_path))}
    assert spans["loss"].parent_span_id == spans["step"].span_id
    assert spans["step"].status.message == "rank 0 never ended it"
    assert spans["step"].start_time_unix_nano == WALL_NS + 1_000
    assert spans["step"].end_time_unix_nano == WALL_NS + 10_000 + 10**9  # its last sign of life


def test_what_was_found_stands_in_the_trace_of_its_op(tmp_path: Path) -> None:
    run = MadeRun(3)
    run.all("all_reduce", op="SUM")
    for rank, count in enumerate((4, 8, 4)):
        run.op(rank, "all_reduce", op="SUM", inputs=[(count,)], status=Status.MISMATCH)
    spans = list(spans_of(run.open(tmp_path)))
    (found,) = [span for span in spans if span.name == "mismatch"]
    (root,) = [span for span in spans if span.name == "all_reduce #2 on world"]
    assert (found.trace_id, found.parent_span_id) == (root.trace_id, root.span_id)
    values = {a.key: a.value for a in found.attributes}
    assert values["error.type"].string_value == "mismatch"
    assert "all_reduce #2" in found.status.message


def test_a_run_without_ops_is_an_empty_file(tmp_path: Path) -> None:
    assert lines_of(MadeRun(2).open(tmp_path)) == []
