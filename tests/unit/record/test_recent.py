"""The newest ops of a record as rows, and an op found by its seq."""

from __future__ import annotations

import pytest

from distdbg.record.format import Flag, Section
from distdbg.record.reader import RecordFile
from tests.support.record_builder import RecordBuilder


def build(count: int, **more: int) -> RecordBuilder:
    found = RecordBuilder(**more)
    found.add_group("dp")
    for at in range(count):
        number = found.issue("all_reduce", at_ns=1000 * at, is_async=bool(at % 2))
        found.start(number, after_ns=100)
        found.end(number, after_ns=300, status=2 if at == 4 else 0)
    return found


def test_the_newest_are_told_in_order() -> None:
    with RecordFile(build(6).to_bytes()) as record:
        ops = record.recent(0, 100)
        assert [op.number for op in ops] == [1, 2, 3, 4, 5, 6]
        assert [op.status for op in ops] == [0, 0, 0, 0, 2, 0]
        assert (ops[1].issued_ns, ops[1].started_ns, ops[1].ended_ns) == (1000, 1100, 1300)
        assert ops[1].flags == Flag.ASYNC
        assert [op.seq for op in record.recent(0, 2)] == [5, 6]
        assert [op.seq for op in record.recent(4, 100)] == [5, 6]
        assert record.recent(6, 100) == []


@pytest.mark.parametrize("count", [7, 8, 9, 15, 16, 17, 30])
def test_a_ring_that_went_round_tells_what_it_still_has(count: int) -> None:
    with RecordFile(build(count).to_bytes(), salvage=True) as record:
        numbers = [op.number for op in record.recent(0, 100)]
        assert numbers == list(range(max(1, count - 7), count + 1))
        assert record.recent_one(count - 8) is None
        last = record.recent_one(count)
        assert last is not None
        assert last.seq == count


def test_a_file_that_ends_in_the_middle_of_a_mark_has_the_others() -> None:
    builder = build(2)
    for step in (1, 2):
        builder.mark("epoch", step)
    data = builder.to_bytes()
    last = builder.offset_of(Section.RING, 4)
    for end in range(last, last + 128):
        with RecordFile(data[:end], salvage=True) as record:
            assert [note.number for note in record.notes(0, 50)] == [3], end


def test_marks_are_no_ops() -> None:
    builder = build(2)
    builder.mark("epoch")
    number = builder.issue("barrier")
    with RecordFile(builder.to_bytes()) as record:
        assert [op.number for op in record.recent(0, 10)] == [1, 2, 4]
        assert record.recent_one(3) is None
        (last,) = record.recent(3, 10)
        assert (last.number, last.ended_ns, last.status) == (number, None, None)


def test_what_is_damaged_or_half_written_is_not_told() -> None:
    builder = build(5)
    data = bytearray(builder.to_bytes())
    data[builder.offset_of(Section.RING, 3) + 20] ^= 1
    with RecordFile(bytes(data), salvage=True) as record:
        assert [op.number for op in record.recent(0, 10)] == [1, 2, 4, 5]
        assert record.find_op(1, 3) is None


@pytest.mark.parametrize("count", [1, 5, 8, 9, 20, 300])
def test_an_op_is_found_by_its_seq_as_long_as_it_is_there(count: int) -> None:
    builder = build(count, ring_count=16, form_count=40)
    with RecordFile(builder.to_bytes(), salvage=True) as record:
        assert record.find_op(1, count) == count
        assert record.find_op(1, count + 1) is None
        assert record.find_op(2, count) is None
        oldest = max(1, count - 15)
        assert record.find_op(1, oldest) == oldest
        assert record.find_op(1, oldest - 1) is None


def test_a_parked_op_is_found_and_told() -> None:
    builder = RecordBuilder()
    builder.add_group("dp")
    first = builder.issue("barrier")
    for _ in range(10):
        builder.end(builder.issue("all_reduce"), after_ns=5)
    with RecordFile(builder.to_bytes(), salvage=True) as record:
        assert record.find_op(1, 1) == first
        parked = record.recent_one(first)
        assert parked is not None
        assert parked.ended_ns is None


def test_messages_are_found_by_peer_and_collectives_are_not_taken_for_them() -> None:
    builder = RecordBuilder(form_count=16)
    builder.add_group("dp", ranks="0-2", size=3)
    builder.issue("all_reduce", seq=1)
    to_two = builder.issue("send", seq=1, peer=2)
    to_one = builder.issue("send", seq=1, peer=1)
    with RecordFile(builder.to_bytes()) as record:
        assert record.find_op(1, 1) == 1
        assert record.find_op(1, 1, flags=Flag.MESSAGE, kind=9, peer=1) == to_one
        assert record.find_op(1, 1, flags=Flag.MESSAGE, kind=9, peer=2) == to_two
        assert record.find_op(1, 1, flags=Flag.MESSAGE, kind=10, peer=1) is None


def test_no_more_counters_are_read_than_are_used() -> None:
    builder = build(1)
    builder.count(0, 1, "all_reduce", ended=1)
    builder.count(1, 1, "barrier", ended=5)
    builder.set_state(counter_count=1)
    with RecordFile(builder.to_bytes()) as record:
        assert [counter.ended for counter in record.counters()] == [1]
