"""Spans of ops: ids that all ranks derive alike, parents and links that lead somewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdbg.export.otel import attributes as names
from distdbg.export.otel.ids import low_half, root_span_id
from distdbg.export.otel.model import SpanData, SpanKind
from distdbg.export.otel.ops import OpSpans, SpanChoice
from distdbg.export.otel.recorded_ops import Context, OpFacts, TracedGroup, TracedRank, facts_of
from distdbg.export.otel.regions import RegionSpans
from distdbg.record.entries import OpEntry
from distdbg.record.format import Status
from distdbg.record.forms import Form
from distdbg.record.reader import read_record
from distdbg.record.recorded_frame import RecordedFrame
from tests.support.record_builder import RecordBuilder

THREAD = 1
BY_HEAD = SpanChoice()
GROUP = TracedGroup(name="1:dp", label="dp", title="dp", ranks=(2, 5, 7), size=3)
ALL_REDUCE = OpFacts(
    number=9, group=GROUP, seq=42, kind="all_reduce", issued_ns=100, ended_ns=900, status=0
)


def of_rank(rank: int, op: OpFacts = ALL_REDUCE, choice: SpanChoice = BY_HEAD) -> list[SpanData]:
    return list(OpSpans(TracedRank(run="r", rank=rank)).make(op, choice))


def test_the_ranks_of_a_collective_share_a_trace_and_a_root_that_one_of_them_sends() -> None:
    made = {rank: of_rank(rank) for rank in GROUP.ranks}
    spans = [span for each in made.values() for span in each]
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == 4
    root = made[2][0]
    assert (root.name, root.parent_id) == ("all_reduce #42 on dp", 0)
    assert [len(each) for each in made.values()] == [2, 1, 1]
    children = [span for span in spans if span is not root]
    assert {span.parent_id for span in children} == {root.span_id, root_span_id(root.trace_id)}
    assert [span.attributes[names.RANK] for span in children] == [2, 5, 7]
    assert {span.kind for span in spans} == {SpanKind.INTERNAL}


@pytest.mark.parametrize(
    ("rank", "op"),
    [
        (TracedRank(run="other", rank=2), ALL_REDUCE),
        (TracedRank(run="r", rank=2, start=1), ALL_REDUCE),
        (TracedRank(run="r", rank=2), replace(ALL_REDUCE, seq=43)),
        (TracedRank(run="r", rank=2), replace(ALL_REDUCE, group=replace(GROUP, name="2:dp"))),
        (TracedRank(run="r", rank=2), replace(ALL_REDUCE, is_aside=True, kind="new_group")),
    ],
)
def test_another_run_start_group_number_or_numbering_is_another_trace(
    rank: TracedRank, op: OpFacts
) -> None:
    assert OpSpans(rank).trace_id(op) != of_rank(2)[0].trace_id


def test_ids_are_never_zero_and_spread_over_their_last_half() -> None:
    spans = OpSpans(TracedRank(run="r", rank=0))
    halves = [low_half(spans.trace_id(replace(ALL_REDUCE, seq=seq))) for seq in range(4000)]
    assert 0 not in halves
    assert 850 < sum(half < 2**62 for half in halves) < 1150


def test_a_recv_is_a_child_of_the_send_that_it_took_and_has_a_link_to_it() -> None:
    send = replace(ALL_REDUCE, kind="send", is_message=True, peer=7, tag=5, message=3, seq=4)
    recv = replace(send, kind="recv", peer=2, seq=9)
    (sent,), (got,) = of_rank(2, send), of_rank(7, recv)
    assert (sent.kind, got.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.trace_id == got.trace_id
    assert sent.parent_id == 0
    assert got.parent_id == sent.span_id
    assert [(link.trace_id, link.span_id, link.why) for link in got.links] == [
        (sent.trace_id, sent.span_id, "send")
    ]
    assert got.attributes[names.PEER] == 2
    assert got.attributes[names.MESSAGING_TYPE] == "receive"


def test_a_recv_of_which_nobody_knows_what_it_took_is_a_trace_of_its_own() -> None:
    recv = replace(ALL_REDUCE, kind="recv", is_message=True, peer=2, message=None)
    (got,) = of_rank(7, recv)
    assert (got.parent_id, got.links) == (0, ())


def test_the_span_of_the_program_has_the_op_as_a_child_and_the_op_still_shows_the_rank() -> None:
    op = replace(ALL_REDUCE, context=Context(0xABC, 0xDEF))
    in_op, in_program = of_rank(5, op, SpanChoice(op=True, caller=True))
    assert (in_program.trace_id, in_program.parent_id) == (0xABC, 0xDEF)
    assert in_op.parent_id == root_span_id(in_op.trace_id)
    (to_op,), (to_program,) = in_program.links, in_op.links
    assert (to_op.trace_id, to_op.span_id) == (in_op.trace_id, in_op.span_id)
    assert (to_program.trace_id, to_program.span_id) == (0xABC, in_program.span_id)


def test_the_span_of_the_program_links_to_nothing_that_was_not_kept() -> None:
    op = replace(ALL_REDUCE, context=Context(0xABC, 0xDEF))
    (in_program,) = of_rank(5, op, SpanChoice(op=False, caller=True))
    assert in_program.links == ()


def test_what_failed_has_the_class_of_its_error() -> None:
    op = replace(ALL_REDUCE, status=Status.TIMEOUT)
    (span,) = of_rank(5, op)
    assert (span.error, span.attributes[names.ERROR_TYPE]) == ("OpTimeout", "OpTimeout")
    reported = '{"type": "RankLeft", "what": "all_reduce #42: rank 7 left"}'
    (span,) = of_rank(5, replace(op, status=Status.PEER_LOST, error=reported))
    assert (span.error, span.attributes[names.ERROR_TYPE]) == (
        "all_reduce #42: rank 7 left",
        "RankLeft",
    )
    assert span.events[-1].name == "exception"


def test_what_never_ended_is_an_error_up_to_now() -> None:
    op = replace(ALL_REDUCE, ended_ns=None, status=None)
    (span,) = OpSpans(TracedRank(run="r", rank=5)).make(op, SpanChoice(), now_ns=5000)
    assert span.ended_ns == 5000
    assert span.attributes[names.ERROR_TYPE] == "unended"


def build() -> RecordBuilder:
    build = RecordBuilder(
        rank=1, world_size=2, run="r", host="n1", wall_ns=10**18, monotonic_ns=500
    )
    group = build.add_group("dp", ranks="0-1", size=2, rank=1)
    stack = [("train.py", 80, "step")]
    number = build.issue(
        "all_reduce", group, at_ns=1000, stack=stack, dtype="float32", nbytes=64, inputs=[(4, 4)]
    )
    build.start(number, after_ns=100)
    build.end(number, after_ns=250)
    number = build.issue("recv", group, at_ns=2000, peer=-1, tag=3, seq=1)
    build.end(number, after_ns=10, source=0)
    return build


def test_spans_of_ops_that_were_looked_up() -> None:
    record = read_record(build().to_bytes())
    rank = TracedRank.of(record.header)
    ops = [event for event in record.events if isinstance(event, OpEntry)]
    spans = [
        span
        for op, message in zip(ops, (None, 1), strict=True)
        for span in OpSpans(rank).make(facts_of(op, rank, message=message), SpanChoice())
    ]
    assert [span.name for span in spans] == ["all_reduce rank 1", "recv rank 1 from 0"]
    first = spans[0]
    assert (first.began_ns, first.ended_ns) == (10**18 + 500, 10**18 + 750)
    assert first.attributes[names.LATE_PEER] == 100 / 1e9
    assert first.attributes[names.INPUTS] == ("[4, 4]",)
    assert first.attributes[names.FILE] == "train.py"
    assert [event.name for event in first.events] == ["started"]


def test_blocks_and_marks_are_nested_and_ops_say_in_which_they_were() -> None:
    build = RecordBuilder(rank=0, run="r", ring_count=16)
    group = build.add_group("dp", ranks="0")
    outer = build.begin_span("step", at_ns=10)
    inner = build.begin_span("forward", at_ns=20)
    build.end(build.issue("barrier", group, at_ns=25, thread=THREAD), after_ns=5)
    build.mark("loss", 0.5, at_ns=28)
    build.end_span(inner, at_ns=30)
    build.end_span(outer, at_ns=40)
    record = read_record(build.to_bytes())
    rank = TracedRank.of(record.header)
    regions, spans = RegionSpans(rank), {}
    for event in record.events:
        made = regions.take(event)
        if isinstance(event, OpEntry):
            region = regions.innermost(event.thread)
            made = OpSpans(rank).make(facts_of(event, rank, region=region), SpanChoice())
        spans |= {span.name: span for span in made}
    step, forward, loss = spans["step"], spans["forward"], spans["loss"]
    assert (step.parent_id, forward.parent_id, loss.parent_id) == (0, step.span_id, forward.span_id)
    assert step.trace_id == forward.trace_id == loss.trace_id
    assert step.ended_ns - step.began_ns == 30
    assert loss.attributes[names.VALUE] == 0.5
    assert spans["barrier rank 0"].attributes[names.REGION] == "forward"


def test_spans_by_the_example_of_another_op_are_those_of_the_op() -> None:
    spans = OpSpans(TracedRank(run="r", rank=0, world_size=2, host="n1"))
    group = TracedGroup(name="1:dp", label="dp", title="dp", ranks=(0, 1), size=2, backend="cpu")
    form = Form(name="all_reduce", kind="all_reduce", dtype="float32", nbytes=8, op="SUM")
    like, other = (
        OpFacts(
            number=at,
            group=group,
            seq=at - 3,
            kind="all_reduce",
            form=form,
            issued_ns=100 * at,
            started_ns=100 * at + 7,
            ended_ns=100 * at + 30 + at,
            status=0,
            site=RecordedFrame("train.py", 7, "main"),
            thread=3,
            region="step",
        )
        for at in (5, 9)
    )
    made = spans.make_plain(
        like,
        spans.trace_id(other),
        number=9,
        seq=6,
        issued_ns=900,
        started_ns=907,
        ended_ns=939,
    )
    assert list(made) == list(spans.make(other, SpanChoice()))
