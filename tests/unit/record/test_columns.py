"""Columns say the same as the events of a salvaging reader, whatever the bytes are."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.errors import RecordError
from distdbg.record.columns import UNSET, Columns
from distdbg.record.entries import OpEntry
from distdbg.record.format import CHECK_MODULUS, OP, EventType, Flag, Section, Status
from distdbg.record.reader import RecordFile, read_record
from tests.support.record_builder import RecordBuilder
from tests.support.record_examples import STEP, build_short, build_wrapped

Build = Callable[[], RecordBuilder]
both = pytest.mark.parametrize("build", [build_short, build_wrapped])


def read_columns(data: bytes) -> Columns:
    with RecordFile(data, salvage=True) as record:
        return record.columns()


def to_ops(columns: Columns) -> list[OpEntry]:
    """The columns as the objects that they stand for."""
    ops = columns.ops
    found = []
    for at, number in enumerate(ops.number):
        outcome = ops.outcome[at]
        form = ops.parked_forms[at] if at in ops.parked_forms else ops.forms[ops.form[at]]
        source = (outcome >> 8) - 1 if outcome >= 0 else -1
        flags = ops.flags[at]
        found.append(
            OpEntry(
                number=number,
                issued_ns=ops.issued_ns[at],
                thread=ops.thread[at],
                stack=ops.stacks[ops.site[at]],
                group=ops.groups[ops.group[at]],
                group_number=ops.group[at],
                seq=ops.seq[at],
                kind=ops.kind[at],
                form=form,
                peer=ops.peer[at] if ops.peer[at] >= 0 else None,
                tag=ops.tag[at],
                is_async=bool(flags & Flag.ASYNC),
                is_message=bool(flags & Flag.MESSAGE),
                is_aside=bool(flags & Flag.ASIDE),
                level=ops.level[at],
                fingerprint=ops.fingerprint[at],
                comm=ops.comms[ops.comm[at]],
                started_ns=None if ops.started_ns[at] == UNSET else ops.started_ns[at],
                ended_ns=None if ops.ended_ns[at] == UNSET else ops.ended_ns[at],
                status=None if outcome < 0 else outcome & 0xFF,
                source=source if source >= 0 else None,
                error=ops.errors.get(at),
            )
        )
    return found


def assert_same(data: bytes, about: object = None) -> None:
    try:
        record = read_record(data, salvage=True)
    except RecordError:
        with pytest.raises(RecordError):
            read_columns(data)
        return
    columns = read_columns(data)
    assert to_ops(columns) == list(record.ops), about
    others = [event for event in record.events if not isinstance(event, OpEntry)]
    assert list(columns.events) == others, about
    assert columns.groups == record.groups, about
    assert columns.progress == record.progress, about
    assert columns.state == record.state, about
    where = [(gap.first, gap.last) for gap in record.gaps]
    assert sorted((gap.first, gap.last) for gap in columns.gaps) == sorted(where), about


@both
def test_columns_say_the_same_after_a_kill_at_any_store(build: Build) -> None:
    builder = build()
    for count in range(len(builder.stores) + 1):
        assert_same(builder.torn(count), count)


@both
def test_columns_say_the_same_of_a_file_cut_anywhere(build: Build) -> None:
    data = build().to_bytes()
    for nbytes in range(0, len(data), 61):
        assert_same(data[:nbytes], nbytes)


@both
def test_columns_say_the_same_of_a_file_with_flipped_bits(build: Build) -> None:
    builder = build()
    data = bytearray(builder.to_bytes())
    used = [offset for offset, byte in enumerate(data) if byte]
    chosen = random.Random(5)
    places = [*range(builder.offsets[Section.RING], len(data), 3), *chosen.sample(used, 200)]
    for offset in places:
        bit = 1 << chosen.randrange(8)
        data[offset] ^= bit
        assert_same(bytes(data), (offset, bit))
        data[offset] ^= bit


@given(st.data())
def test_columns_say_the_same_whatever_is_written_into_a_file(data: st.DataObject) -> None:
    file = bytearray(build_wrapped().to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(file) - 8))
        file[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    assert_same(bytes(file))


@pytest.mark.parametrize("count", [0, 1, 6, 7, 8, 9, 15, 16, 17, 40])
def test_a_ring_of_any_fill_is_read_in_order(count: int) -> None:
    build = RecordBuilder(ring_count=8, strings_nbytes=256)
    group = build.add_group("dp", ranks="0-1", size=2)
    for index in range(count):
        build.end(build.issue("all_reduce", group, at_ns=index, stack=STEP), after_ns=1)
    columns = read_columns(build.to_bytes())
    assert list(columns.ops.number) == list(range(max(1, count - 7), count + 1))
    assert columns.overwritten == max(0, count - 8)
    assert_same(build.to_bytes())


def test_a_check_of_zero_is_a_check() -> None:
    build = RecordBuilder()
    facts = {"issued_ns": 7, "kind": 1, "thread": 5}
    build.write_event(EventType.OP, **facts)
    place = build.offset_of(Section.RING, 1) + OP["check"].offset
    check = int.from_bytes(build.to_bytes()[place : place + 8], "little")
    again = RecordBuilder()
    again.write_event(EventType.OP, **facts, fingerprint=CHECK_MODULUS - check)
    assert again.to_bytes()[place : place + 8] == bytes(8)
    again.write_event(EventType.OP, **facts)
    assert list(read_columns(again.to_bytes()).ops.number) == [1, 2]
    assert_same(again.to_bytes())


def test_a_state_that_lies_about_the_last_number_hides_nothing() -> None:
    build = build_wrapped()
    for last in (0, 3, 7, 8, 2**64 - 1):
        build.set_state(last_number=last, site_count=0, strings_nbytes=0)
        assert_same(build.to_bytes(), last)


def test_times_beyond_what_a_column_holds_are_cut() -> None:
    build = RecordBuilder()
    build.add_group("dp")
    number = build.issue("barrier", at_ns=2**63 - 10)
    build.end(number, after_ns=1_000, status=Status.TIMEOUT)
    ops = read_columns(build.to_bytes()).ops
    assert list(ops.ended_ns) == [2**63 - 1]


def test_an_op_that_is_over_at_an_unreadable_time_has_ended() -> None:
    build = build_short()
    data = bytearray(build.to_bytes())
    place = build.offset_of(Section.RING, 2)
    data[place + 104] ^= 1
    ops = read_columns(bytes(data)).ops
    assert ops.ended_ns[0] == UNSET
    assert ops.has_ended[0]
