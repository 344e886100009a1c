"""Whatever happens to the bytes: a prefix of the events, or RecordError."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.errors import RecordError
from distdbg.record.entries import Event, OpEntry, Record
from distdbg.record.format import (
    FORM,
    HEADER,
    HEADER_NBYTES,
    OP,
    OP_NBYTES,
    SECTION,
    SITE,
    STATE_NBYTES,
    Section,
    checksum,
)
from distdbg.record.forms import Form
from distdbg.record.header import LEAST_ENTRY_NBYTES
from distdbg.record.reader import RecordFile, read_record
from tests.support.record_builder import RecordBuilder
from tests.support.record_examples import build_short, build_wrapped

Build = Callable[[], RecordBuilder]
both = pytest.mark.parametrize("build", [build_short, build_wrapped])


#: Forms by their text. Thousands of readings find the same few; one that is damaged is another text.
FORMS: dict[bytes, Form] = {}


def read_or_none(data: bytes) -> Record | None:
    try:
        return read_record(data, parsed=FORMS)
    except RecordError:
        return None


def assert_prefix(events: tuple[Event, ...], all_events: tuple[Event, ...], about: object) -> None:
    assert events == all_events[: len(events)], about


PARTS = 4
parts = pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))]
)


def places_to_cut(data: bytes) -> list[int]:
    """Every byte where something was written; where nothing was, words: all entries are of words."""
    near = bytes(16) + data + bytes(16)
    return [place for place in range(len(data)) if place % 8 == 0 or any(near[place : place + 32])]


# Cut before its last place, the first has lost its newest event, the second 15 to 17.
@parts
@pytest.mark.parametrize(("build", "most"), [(build_short, 6), (build_wrapped, 7)])
def test_a_file_cut_at_any_byte_gives_a_prefix(build: Build, most: int, part: int) -> None:
    data = build().to_bytes()
    whole = read_record(data).events
    lengths = set()
    for nbytes in {0, len(data) - 1, *places_to_cut(data)[part::PARTS]}:
        record = read_or_none(data[:nbytes])
        if record is not None:
            assert_prefix(record.events, whole, nbytes)
            lengths.add(len(record.events))
        else:
            assert nbytes < HEADER_NBYTES + STATE_NBYTES
    assert min(lengths) == 0
    assert max(lengths) == most


#: The number, length and check of an entry.
HEAD_NBYTES = 24


def bytes_that_matter(build: RecordBuilder, data: bytes) -> tuple[set[int], set[int]]:
    """Of these every bit is flipped, and of these one bit each.

    Every bit: of the state, of the ring, of the first entry of each other section, and of the head of the
    first empty place there. A further entry has the same words, and its text has one check.
    """
    every = {place for place in range(HEADER_NBYTES, min(build.offsets.values())) if data[place]}
    one = {place for place in range(HEADER_NBYTES) if data[place]}
    for section, start, end in sections_of(build, data):
        if section is Section.RING:
            every |= {*range(start, end)}
            continue
        stride = 8 if section is Section.STRINGS else LEAST_ENTRY_NBYTES[section]
        seen: set[bool] = set()
        for place in range(start, end, stride):
            used = (len(data[place : place + stride].rstrip(b"\0")) + 15) // 8 * 8
            is_used = any(data[place : place + stride])
            certain = used if is_used and is_used not in seen else HEAD_NBYTES
            if is_used or is_used not in seen:
                every |= {*range(place, place + min(stride, certain))}
            one |= {*range(place, place + min(stride, used))}
            seen.add(is_used)
    return every, one


def bytes_that_matter_when_wrapped(build: RecordBuilder, data: bytes) -> tuple[set[int], set[int]]:
    """The same of what is different when the ring has come round: the ring, and what is parked.

    All checked words of an op are summed, so only the lowest byte tells a neighbour's number from damage.
    """
    every: set[int] = set()
    one: set[int] = set()
    for section, start, end in sections_of(build, data):
        if section not in (Section.RING, Section.PARKED):
            continue
        for place in range(start, end, stride := LEAST_ENTRY_NBYTES[section]):
            op = range(place, place + OP_NBYTES)
            check = place + OP["check"].offset
            every |= {at for at in op if at % 8 == 0 or at < place + 8 or at >= check}
            one |= {*op}
            if section is Section.PARKED:
                every |= {*range(place + OP_NBYTES, place + OP_NBYTES + HEAD_NBYTES)}
                one |= {at for at in range(place + OP_NBYTES, place + stride) if data[at]}
    return every, one


def sections_of(build: RecordBuilder, data: bytes) -> Iterator[tuple[Section, int, int]]:
    """Each with where it begins and ends."""
    starts = sorted(build.offsets.items(), key=itemgetter(1))
    ends = [start for _, start in starts[1:]] + [len(data)]
    return ((section, start, end) for (section, start), end in zip(starts, ends, strict=True))


def bits_that_matter(build: RecordBuilder, data: bytes) -> Iterator[tuple[int, int]]:
    """What to flip, and a sample of all the rest."""
    sample = random.Random(7)
    is_wrapped = read_record(data).events[-1].number > 8
    find = bytes_that_matter_when_wrapped if is_wrapped else bytes_that_matter
    every, one = find(build, data)
    for offset in range(len(data)):
        for bit in range(8):
            is_chosen = offset in every or (offset in one and bit == offset % 8)
            if is_chosen or sample.random() < 0.01:
                yield offset, bit


@parts
@both
@pytest.mark.slow
def test_any_flipped_bit_gives_a_prefix(build: Build, part: int) -> None:
    builder = build()
    data = builder.to_bytes()
    whole = read_record(data).events
    damaged = bytearray(data)
    for offset, bit in itertools.islice(bits_that_matter(builder, data), part, None, PARTS):
        damaged[offset] ^= 1 << bit
        record = read_or_none(bytes(damaged))
        damaged[offset] ^= 1 << bit
        if record is not None:
            assert_prefix(record.events, whole, (offset, bit))


@both
def test_a_kill_after_any_store_leaves_a_readable_file(build: Build) -> None:
    builder = build()
    last_number = 0
    for count in range(len(builder.stores) + 1):
        record = read_record(builder.torn(count))
        numbers = [event.number for event in record.events]
        # In order, nothing twice, nothing that was there is gone but what the ring overwrote.
        assert numbers == sorted(set(numbers)), count
        newest = record.state.last_number
        assert newest >= last_number
        last_number = newest
        if newest:
            assert numbers[-1] in (newest, newest + 1), count
            oldest = max(1, numbers[-1] - 6)
            assert set(range(oldest, newest + 1)) <= set(numbers), count
        assert not record.gaps, count


def test_ops_in_flight_are_there_after_a_kill_at_any_store() -> None:
    builder = build_wrapped()
    for count in range(len(builder.stores) + 1):
        record = read_record(builder.torn(count))
        numbers = {event.number for event in record.events}
        for hanging in (2, 8):
            if record.state.last_number >= hanging:
                assert hanging in numbers, count


@given(
    places=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=40),
    is_wrapped=st.booleans(),
    salvage=st.booleans(),
)
def test_any_damage_gives_events_in_order_or_a_record_error(
    places: list[tuple[int, int]], is_wrapped: bool, salvage: bool
) -> None:
    data = bytearray((build_wrapped if is_wrapped else build_short)().to_bytes())
    for place, value in places:
        data[HEADER_NBYTES + place % (len(data) - HEADER_NBYTES)] = value
    record = read_record(bytes(data), salvage=salvage)
    numbers = [event.number for event in record.events]
    assert numbers == sorted(set(numbers))


@given(data=st.binary(max_size=300))
def test_bytes_that_are_no_record_are_a_record_error(data: bytes) -> None:
    with pytest.raises(RecordError):
        read_record(data)
    with pytest.raises(RecordError):
        read_record(build_short().to_bytes()[:8] + data)


@given(
    ring_count=st.sampled_from([2, 3, 8]),
    steps=st.lists(
        st.tuples(st.sampled_from(["op", "mark", "end"]), st.integers(0, 5)), max_size=60
    ),
)
def test_any_run_comes_back_whole(ring_count: int, steps: list[tuple[str, int]]) -> None:
    build = RecordBuilder(ring_count=ring_count, form_count=ring_count + 4, parked_count=64)
    group = build.add_group("dp")
    in_flight: list[int] = []
    written: dict[int, bool] = {}
    for step, which in steps:
        if step == "op":
            number = build.issue("all_reduce", group, inputs=[(which,)])
            in_flight.append(number)
            written[number] = False
        elif step == "mark":
            written[build.mark(f"m{which}")] = True
        elif in_flight:
            number = in_flight.pop(which % len(in_flight))
            build.end(number, after_ns=1)
            written[number] = True
    record = read_record(build.to_bytes())
    assert not record.gaps
    found = {event.number for event in record.events}
    last = max(written, default=0)
    assert {n for n, is_ended in written.items() if not is_ended or n > last - ring_count} <= found
    for event in record.events:
        if isinstance(event, OpEntry):
            assert (event.ended_ns is not None) == written[event.number]
            assert event.form is not None
            assert event.kind_label == "all_reduce"


# ------------------------------------------------------------------------------------ hostile


def put(data: bytearray, offset: int, code: str, *values: int) -> None:
    struct.pack_into("<" + code, data, offset, *values)


def with_header(data: bytes, offset: int, code: str, *values: int) -> bytes:
    """A changed header whose check is right."""
    changed = bytearray(data)
    put(changed, offset, code, *values)
    put(changed, HEADER_NBYTES - 8, "Q", checksum(bytes(changed[: HEADER_NBYTES - 8])))
    return bytes(changed)


@pytest.mark.parametrize("section", list(Section))
@pytest.mark.parametrize(
    "row",
    [
        (8192, 2**32 - 1, 2**32 - 1),
        (8192, 2**32 - 1, 128),
        (2**64 - 8, 1, 128),
        (0, 1, 128),
        (8192, 1, 0),
        (8192, 0, 2048),
        (8193, 1, 2048),
        (8192, 1, 2041),
    ],
)
def test_a_hostile_table_of_sections_is_refused(section: Section, row: tuple[int, ...]) -> None:
    data = build_short().to_bytes()
    offset = HEADER["sections"].offset + section * struct.calcsize(SECTION)
    with pytest.raises(RecordError, match="its header names"):
        read_record(with_header(data, offset, "QII", *row))


@pytest.mark.parametrize("name", ["total_nbytes", "header_nbytes"])
def test_hostile_sizes_are_refused(name: str) -> None:
    data = build_short().to_bytes()
    field = HEADER[name]
    largest = 2 ** (8 * struct.calcsize(field.code)) - 1
    with pytest.raises(RecordError, match="its header names"):
        read_record(with_header(data, field.offset, field.code, largest))


def test_sections_larger_than_the_file_cost_nothing(tmp_path: Path) -> None:
    data = build_short().to_bytes()
    offset = HEADER["sections"].offset + Section.RING * struct.calcsize(SECTION)
    huge = with_header(data, HEADER["total_nbytes"].offset, "Q", 2**28)
    huge = with_header(huge, offset, "QII", 2**20, 2**20, 128)
    path = tmp_path / "rank00000.ddr"
    path.write_bytes(huge)
    assert read_record(path).events == ()
    assert read_record(huge, salvage=True).events == ()


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2, 2**48, 9 + 8])
@pytest.mark.parametrize("section", [Section.RING, Section.PARKED])
@pytest.mark.parametrize("salvage", [True, False])
def test_a_forged_number_is_no_other_error(number: int, section: Section, salvage: bool) -> None:
    builder = build_wrapped()
    data = bytearray(builder.to_bytes())
    index = number % 8 if section is Section.RING else 0
    place = builder.offset_of(section, index)
    put(data, place, "Q", number)
    put(data, place + OP["check"].offset, "Q", checksum(bytes(data[place : place + 88])))
    # The next place looks as if number + 1 had been cleared there.
    place = builder.offset_of(Section.RING, (number + 1) % 8)
    put(data, place, "Q", 0)
    words = int.from_bytes(data[place : place + 88], "little") + number + 1
    put(data, place + OP["check"].offset, "Q", words % (2**64 - 1))
    record = read_record(bytes(data), salvage=salvage)
    numbers = [event.number for event in record.events]
    assert numbers == sorted(set(numbers))
    with RecordFile(bytes(data)) as file:
        file.survey()
        file.issued(0)
        file.event(number)
        file.event(number + 1)


def site_place(builder: RecordBuilder, index: int) -> int:
    return builder.offset_of(Section.SITES, index)


@pytest.mark.parametrize("parent", [1, 2, 3, 2**32 - 1])
def test_a_stack_that_leads_back_to_itself_is_damage(parent: int) -> None:
    builder = build_short()
    data = bytearray(builder.to_bytes())
    place = site_place(builder, 2)
    put(data, place + SITE["parent"].offset, "I", parent)
    put(data, place + SITE["check"].offset, "Q", checksum(bytes(data[place : place + 24])))
    record = read_record(bytes(data))
    if parent != 1:
        assert len(record.events) < 7
        assert "site" in record.gaps[-1].why
        assert all(
            len(event.stack) <= 64 for event in read_record(bytes(data), salvage=True).events
        )


def test_a_form_that_is_no_json_is_damage_and_salvage_goes_on_without_it() -> None:
    builder = build_short()
    builder_form = builder.add_form(b'{"name":')
    builder.write_event(1, form=builder_form, kind=1)
    builder.mark("after")
    record = read_record(builder.to_bytes())
    assert record.events[-1].number == 7
    assert "cannot be parsed" in record.gaps[-1].why
    salvaged = read_record(builder.to_bytes(), salvage=True)
    assert [event.number for event in salvaged.events[-2:]] == [8, 9]
    assert isinstance(salvaged.events[-2], OpEntry)
    assert salvaged.events[-2].form is None


def test_salvage_gives_what_is_whole_and_lists_what_is_not() -> None:
    builder = build_short()
    data = bytearray(builder.to_bytes())
    place = builder.offset_of(Section.RING, 4)
    data[place + OP["seq"].offset] ^= 1
    assert [event.number for event in read_record(bytes(data)).events] == [1, 2, 3]
    record = read_record(bytes(data), salvage=True)
    assert [event.number for event in record.events] == [1, 2, 3, 5, 6, 7]
    assert [(gap.first, gap.last, gap.offset, gap.why) for gap in record.gaps] == [
        (4, 4, place, "damaged")
    ]


def test_salvage_reads_on_behind_a_damaged_header() -> None:
    data = bytearray(build_short().to_bytes())
    data[HEADER["host"].offset] ^= 1
    with pytest.raises(RecordError, match="the check of its header is wrong"):
        read_record(bytes(data))
    record = read_record(bytes(data), salvage=True)
    assert len(record.events) == 7
    assert record.gaps[0].why == "the header is damaged"


def test_text_that_is_no_utf_8_is_shown_as_escapes() -> None:
    builder = build_short()
    builder.set_state(exit_text=0)
    data = bytearray(with_header(builder.to_bytes(), HEADER["host"].offset, "4s", b"n\xff4\0"))
    assert read_record(bytes(data)).header.host == "n\\xff4"
    assert FORM["text"].offset == 24
