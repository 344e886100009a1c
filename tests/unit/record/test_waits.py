"""Threads that wait for ops that they had begun earlier, as a reader sees them."""

from __future__ import annotations

import struct

import pytest

from distdbg.record.format import HEADER_NBYTES, STATE, WAIT_COUNT, WAIT_NBYTES
from distdbg.record.rank_words import Clock
from distdbg.record.reader import RecordFile, read_record
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.text import render
from tests.support.record_builder import RecordBuilder

SITE = [("/home/ada/train.py", 80, "step")]
SECOND = 10**9
WAITS = HEADER_NBYTES + STATE["waits"].offset


def build() -> tuple[RecordBuilder, int]:
    found = RecordBuilder(rank=0, world_size=2, boot_id="here")
    group = found.add_group("dp", ranks="0-1", size=2)
    return found, found.issue("all_reduce", group, at_ns=SECOND, is_async=True, stack=SITE)


def test_a_record_without_waits_has_none() -> None:
    builder, _ = build()
    state = read_record(builder.to_bytes()).state
    assert (state.work_waits, state.lost_waits) == ((), 0)


def test_waits_are_read_the_longest_first() -> None:
    builder, number = build()
    builder.wait(number, since_ns=9 * SECOND, thread=7, place=0)
    builder.wait(number, since_ns=8 * SECOND, thread=8, place=31, stack=SITE)
    builder.set_state(lost_waits=3)
    with RecordFile(builder.to_bytes()) as record:
        state = record.state()
        assert record.work_waits() == state.work_waits
    assert state.lost_waits == 3
    assert [(w.number, w.since_ns, w.thread) for w in state.work_waits] == [
        (number, 8 * SECOND, 8),
        (number, 9 * SECOND, 7),
    ]
    assert state.work_waits[0].site == RecordedFrame("/home/ada/train.py", 80, "step")
    assert state.work_waits[1].site is None


def test_a_wait_that_begins_and_ends_moves_the_pulse() -> None:
    builder, number = build()
    pulses = [RecordFile(builder.to_bytes()).pulse()]
    builder.wait(number)
    pulses.append(RecordFile(builder.to_bytes()).pulse())
    builder.end_wait()
    pulses.append(RecordFile(builder.to_bytes()).pulse())
    assert len(set(pulses)) == 3


def test_a_wait_is_whole_or_not_there_after_any_store() -> None:
    builder, number = build()
    builder.wait(number, since_ns=8 * SECOND, thread=8, stack=SITE)
    builder.end_wait()
    builder.wait(number, since_ns=9 * SECOND, thread=9)
    seen = set()
    for count in range(len(builder.stores) + 1):
        for wait in read_record(builder.torn(count), salvage=True).state.work_waits:
            seen.add((wait.number, wait.since_ns, wait.thread))
    assert seen == {(number, 8 * SECOND, 8), (number, 9 * SECOND, 9)}


@pytest.mark.parametrize("bit", range(0, 8 * WAIT_NBYTES, 5))
def test_no_flipped_bit_makes_another_wait(bit: int) -> None:
    builder, number = build()
    builder.wait(number, since_ns=8 * SECOND, thread=8, stack=SITE)
    data = bytearray(builder.to_bytes())
    data[WAITS + bit // 8] ^= 1 << bit % 8
    assert read_record(bytes(data), salvage=True).state.work_waits == ()


def test_a_wait_at_a_site_that_is_damaged_is_without_one() -> None:
    builder, number = build()
    builder.wait(number, since_ns=8 * SECOND, stack=SITE)
    data = bytearray(builder.to_bytes())
    at = data.index(struct.pack("<I", 80))
    data[at] ^= 1
    (wait,) = read_record(bytes(data), salvage=True).state.work_waits
    assert wait.stack == ()


def test_all_places_can_be_taken() -> None:
    builder, number = build()
    for place in range(WAIT_COUNT):
        builder.wait(number, since_ns=place + 1, thread=place, place=place)
    waits = read_record(builder.to_bytes()).state.work_waits
    assert [wait.thread for wait in waits] == list(range(WAIT_COUNT))


def test_who_waits_is_printed() -> None:
    builder, number = build()
    builder.wait(number, since_ns=8 * SECOND, thread=123, stack=SITE)
    record = read_record(builder.to_bytes())
    clock = Clock(record.header, 11_100_000_000, "here")
    lines = render(record, clock, is_live=True, most_events=5)
    assert "thread 123 waits for all_reduce #1 for 3.1 s, at train.py:80 (step)" in lines
    builder.end(number, after_ns=5)
    lines = render(read_record(builder.to_bytes()), clock, is_live=True, most_events=5)
    assert not any("waits for" in line for line in lines)
