"""Marks, spans, findings and contexts: all of them with the events, and the newest for who follows."""

from __future__ import annotations

import dataclasses

import pytest

from distdbg.record.__main__ import to_plain
from distdbg.record.entries import (
    ContextEntry,
    FindingEntry,
    MarkEntry,
    OpEntry,
    SpanBegin,
    SpanEnd,
)
from distdbg.record.format import OP, Section
from distdbg.record.rank_words import Clock
from distdbg.record.reader import RecordFile, read_record
from distdbg.record.text import render
from tests.support.record_builder import RecordBuilder

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
SPAN = 0xF0F067AA0BA902B7


def build(**more: int) -> RecordBuilder:
    """Numbers 1 to 8: a context, a span, an op, a mark, an op, a finding, the span's end, no context."""
    found = RecordBuilder(**more)
    found.add_group("dp")
    found.context(TRACE, SPAN, at_ns=5, thread=7)
    begin = found.begin_span("forward")
    found.end(found.issue("all_reduce"), after_ns=10)
    found.mark("step", 12.0)
    found.end(found.issue("barrier"), after_ns=10)
    found.find('{"what": "order"}')
    found.end_span(begin)
    found.context(0, 0, thread=7)
    return found


def test_a_context_has_the_ids_as_they_are_written_elsewhere() -> None:
    record = read_record(build().to_bytes())
    first, last = (event for event in record.events if isinstance(event, ContextEntry))
    assert first.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert first.span_id == "f0f067aa0ba902b7"
    assert (first.is_sampled, first.thread, first.issued_ns, first.stack) == (True, 7, 5, ())
    assert (last.trace_id, last.span_id) == ("", "")
    assert record.gaps == ()


@pytest.mark.parametrize(("trace", "span"), [(1, 1), (2**128 - 1, 2**64 - 1), (2**64, 2**63)])
def test_ids_of_any_size_come_back(trace: int, span: int) -> None:
    builder = RecordBuilder()
    builder.context(trace, span, is_sampled=False)
    (event,) = read_record(builder.to_bytes()).events
    assert isinstance(event, ContextEntry)
    assert (int(event.trace_id, 16), int(event.span_id, 16)) == (trace, span)
    assert (len(event.trace_id), len(event.span_id), event.is_sampled) == (32, 16, False)


def test_columns_have_the_contexts_among_the_events() -> None:
    with RecordFile(build().to_bytes()) as file:
        columns, events = file.columns(), file.read().events
    assert columns.events == tuple(event for event in events if not isinstance(event, OpEntry))
    assert [type(event) for event in columns.events].count(ContextEntry) == 2


def test_words_and_plain_values_tell_of_contexts() -> None:
    record = read_record(build().to_bytes())
    lines = render(record, Clock(record.header, 0, ""), is_live=False, most_events=9)
    assert any(f"thread 7 is in span f0f067aa0ba902b7 of trace {TRACE:x}" in each for each in lines)
    assert any("thread 7 is in no span of the program's traces" in each for each in lines)
    plain = to_plain(record, is_live=False, most_events=9)["events"]
    assert plain[0]["type"] == "Context"
    assert plain[0]["trace_id"] == f"{TRACE:x}"


def test_the_newest_notes_are_told_in_order_without_the_ops() -> None:
    with RecordFile(build().to_bytes()) as file:
        events = [event for event in file.read().events if not isinstance(event, OpEntry)]
        assert file.notes(0, 100) == events
        kinds = [ContextEntry, SpanBegin, MarkEntry, FindingEntry, SpanEnd, ContextEntry]
        assert [type(event) for event in events] == kinds
        assert [event.number for event in file.notes(0, 2)] == [7, 8]
        assert [event.number for event in file.notes(4, 100)] == [6, 7, 8]
        assert file.notes(0, 0) == file.notes(8, 9) == file.notes(99, 9) == []


@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 9, 15, 16, 17, 40])
def test_a_ring_that_went_round_tells_the_notes_that_it_still_has(count: int) -> None:
    builder = build()
    for at in range(count):
        builder.mark("step", float(at))
    with RecordFile(builder.to_bytes()) as file:
        notes = file.notes(0, 100)
        assert notes == [event for event in file.read().events if not isinstance(event, OpEntry)]
        assert file.notes(0, 3) == notes[-3:]


def test_a_record_of_ops_alone_has_no_notes() -> None:
    builder = RecordBuilder()
    builder.add_group("dp")
    with RecordFile(builder.to_bytes()) as file:
        assert file.notes(0, 9) == []
    builder.end(builder.issue("barrier"), after_ns=1)
    with RecordFile(builder.to_bytes()) as file:
        assert file.notes(0, 9) == []


def test_what_is_damaged_or_unknown_is_passed_over() -> None:
    builder = build(ring_count=16, form_count=32)
    builder.write_event(77)
    builder.mark("after")
    data = bytearray(builder.to_bytes())
    data[builder.offset_of(Section.RING, 4) + OP["value"].offset] ^= 1
    with RecordFile(bytes(data), salvage=True) as file:
        assert [event.number for event in file.notes(0, 99)] == [1, 2, 6, 7, 8, 10]


def test_a_note_whose_words_are_damaged_is_told_without_them() -> None:
    builder = RecordBuilder()
    builder.mark("step", 3.0)
    data = bytearray(builder.to_bytes())
    data[data.index(b'{"name":"step"}')] ^= 1
    with RecordFile(bytes(data)) as file:
        (mark,) = file.notes(0, 9)
    assert isinstance(mark, MarkEntry)
    assert (mark.name, mark.value) == (None, 3.0)
    assert dataclasses.replace(mark, name="step") == read_record(builder.to_bytes()).events[0]
