"""Records that are whole: golden bytes, each field, the file by parts, live, and fast."""

from __future__ import annotations

import mmap
import os
import re
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.errors import RecordError
from distdbg.record.entries import FindingEntry, MarkEntry, OpEntry, SpanBegin, SpanEnd
from distdbg.record.format import HEADER, HEADER_NBYTES, OP, Exit, Flag, Section, Status, checksum
from distdbg.record.rank_words import Clock
from distdbg.record.reader import RecordFile, read_record
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.text import render
from tests.support.record_builder import RecordBuilder
from tests.support.record_examples import build_short, build_wrapped

GOLDEN = Path(__file__).parent / "golden" / "short-v1.ddr"
LAYOUT = Path(__file__).parents[3] / "docs" / "reference" / "record-layout.md"
STACK = (RecordedFrame("train.py", 80, "step"), RecordedFrame("train.py", 120, "main"))


def test_the_golden_bytes_are_what_the_layout_says() -> None:
    assert build_short().to_bytes() == GOLDEN.read_bytes(), "a changed layout needs a new VERSION"


def test_counters_tell_dtypes_apart_and_files_without_are_of_none() -> None:
    build = RecordBuilder(counter_count=3)
    group = build.add_group("dp")
    build.count(0, group, "all_reduce", ended=1)
    build.count(1, group, "all_reduce", "bfloat16", ended=2)
    build.set_state(counter_count=2, lost_counters=5)
    with RecordFile(build.to_bytes()) as file:
        assert [(one.kind, one.dtype, one.ended) for one in file.counters()] == [
            (1, "", 1),
            (1, "bfloat16", 2),
        ]
        assert file.state().lost_counters == 5
    record = read_record(build.to_bytes())
    words = render(record, Clock(record.header, 0, ""), is_live=False, most_events=0)
    assert any("all_reduce bfloat16: 2 ended" in line for line in words)
    assert any("5 ops are in no counter" in line for line in words)


def test_a_counter_whose_dtype_is_damaged_counts_all_the_same() -> None:
    build = RecordBuilder()
    group = build.add_group("dp")
    build.count(0, group, "barrier", "float32", ended=7)
    data = bytearray(build.to_bytes())
    data[data.index(b"float32")] ^= 1
    (counter,) = read_record(bytes(data), salvage=True).counters
    assert (counter.ended, counter.dtype) == (7, "")


def test_a_golden_record_is_read_in_full() -> None:
    record = read_record(GOLDEN)
    header = record.header
    assert (header.rank, header.world_size, header.pid, header.host) == (12, 16, 4711, "n14")
    assert header.argv == ("train.py",)
    assert header.to_wall_ns(1_500) == 1_764_000_000 * 10**9 + 1_500
    assert record.gaps == ()
    assert record.state.exit is Exit.RAISED
    assert record.state.exit_text == "ValueError: 7 is not a colour"
    (group,) = record.groups
    assert (group.desc, group.ranks, group.size, group.rank) == ("dp", "0-15", 16, 12)
    assert group.stack[0].line == 91
    assert (record.progress[1].issued_seq, record.progress[1].ended_seq) == (2, 1)
    assert record.progress[1].broken is None
    (counter,) = record.counters
    assert (counter.group, counter.kind, counter.ended, counter.nbytes) == (1, 1, 1, 4096)

    begin, reduced, end, mark, received, finding, barrier = record.events
    assert isinstance(begin, SpanBegin)
    assert begin.name == "forward"
    assert isinstance(end, SpanEnd)
    assert end.begin == begin.number == 1
    assert isinstance(mark, MarkEntry)
    assert (mark.name, mark.value, mark.issued_ns) == ("step", 12.0, 1_400)
    assert isinstance(finding, FindingEntry)
    assert finding.text == '{"what": "order"}'
    assert finding.group == group
    assert isinstance(reduced, OpEntry)
    assert (reduced.name, reduced.seq, reduced.status_label) == ("all_reduce", 1, "ok")
    assert (reduced.started_ns, reduced.ended_ns) == (1_100, 1_250)
    assert reduced.stack == STACK
    assert str(reduced.site) == "train.py:80 (step)"
    assert reduced.group == group
    assert (reduced.comm, reduced.fingerprint, reduced.peer) == ("layer 3", 0xFEED, None)
    assert reduced.form is not None
    assert (reduced.form.op, reduced.form.inputs.items) == ("sum", ((1024,),))
    assert isinstance(received, OpEntry)
    assert (received.status, received.source, received.tag) == (Status.PEER_LOST, 3, 7)
    assert (received.is_async, received.is_message) == (True, True)
    assert received.error == '{"what": "PeerLost"}'
    assert isinstance(barrier, OpEntry)
    assert (barrier.status, barrier.status_label, barrier.ended_ns) == (None, "in flight", None)


def test_the_hex_in_the_reference_is_in_the_golden_record() -> None:
    page = LAYOUT.read_text()
    found = re.search(r"at ([\d,]+): an\n", page)
    assert found is not None
    offset = int(found[1].replace(",", ""))
    words = re.findall(r"^ *\d+  ((?:[0-9a-f]{2} ?){8}) ", page, re.MULTILINE)
    data = bytes.fromhex(" ".join(words))
    assert len(data) == 128
    assert GOLDEN.read_bytes()[offset : offset + 128] == data
    assert struct.unpack_from("<Q", data, OP["check"].offset)[0] == checksum(data[:88])


def test_parked_ops_come_first_and_the_ring_follows() -> None:
    record = read_record(build_wrapped().to_bytes())
    assert [event.number for event in record.events] == [2, 8, *range(10, 18)]
    parked = record.ops[0]
    assert (parked.status_label, parked.name) == ("in flight", "broadcast")
    assert parked.form is not None


def test_what_a_ring_has_overwritten_is_none() -> None:
    build = RecordBuilder(ring_count=8, form_count=4, group_count=2, strings_nbytes=512)
    first = build.add_group("a")
    build.end(build.issue("all_reduce", first, inputs=[(1,)]), after_ns=1)
    build.find("old")
    for index in range(4):
        build.add_group(f"g{index}")
        build.mark(f"mark {index}")
        build.find(f"{index}")
    record = read_record(build.to_bytes(), salvage=True)
    assert not record.gaps
    (op,) = record.ops or (None,)
    if op is not None:
        assert op.form is None
        assert op.group is None
        assert op.group_number == first
        assert op.name == "all_reduce"
    texts = [event.text for event in record.events if isinstance(event, FindingEntry)]
    assert texts[0] is None
    assert texts[-1] == "3"


def test_types_of_a_later_version_are_passed_over() -> None:
    build = build_short()
    build.write_event(77)
    record = read_record(build.to_bytes())
    assert len(record.events) == 7
    assert record.gaps[-1].why == "of a type that this version does not know"


def test_larger_entries_of_a_later_version_are_read() -> None:
    data = bytearray(build_short().to_bytes())
    # The ring is the last section: its entries can be spread without moving anything else.
    offset = HEADER["sections"].offset + 16 * Section.RING
    start, count, nbytes = struct.unpack_from("<QII", data, offset)
    entries = [bytes(data[start + i * nbytes : start + (i + 1) * nbytes]) for i in range(count)]
    data[start:] = b"".join(entry + b"new field" + bytes(7) for entry in entries)
    struct.pack_into("<QII", data, offset, start, count, nbytes + 16)
    struct.pack_into("<Q", data, HEADER["total_nbytes"].offset, len(data))
    check = checksum(bytes(data[: HEADER_NBYTES - 8]))
    struct.pack_into("<Q", data, HEADER_NBYTES - 8, check)
    assert read_record(bytes(data)).events == read_record(GOLDEN).events


# ------------------------------------------------------------------------------------- refused


def test_a_foreign_version_is_named_with_its_writer() -> None:
    data = bytearray(RecordBuilder(wall_ns=1_793_577_600 * 10**9, version=4).to_bytes())
    with pytest.raises(RecordError) as caught:
        read_record(bytes(data))
    assert str(caught.value).splitlines() == [
        "<bytes> was written with format 4; this distdbg reads format 1",
        "  written by distdbg 0.1.0 on 2026-11-02; nothing was read",
        "  hint: use the distdbg that wrote it",
    ]
    assert (caught.value.path, caught.value.offset, caught.value.exit_code) == ("<bytes>", 8, 7)


def test_a_record_of_the_other_byte_order_is_refused() -> None:
    data = bytearray(GOLDEN.read_bytes())
    data[12:16] = data[12:16][::-1]
    with pytest.raises(RecordError, match="other byte order"):
        read_record(bytes(data))


@pytest.mark.parametrize("kind", ["nothing", "folder", "pipe", "empty", "text", "name"])
def test_what_is_no_record_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "rank00000.ddr"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in ("empty", "text"):
        path.write_text("" if kind == "empty" else "hello, this is no record at all")
    with pytest.raises(RecordError) as caught:
        read_record("a\0b" if kind == "name" else path)
    assert "\n" not in str(caught.value)


# ----------------------------------------------------------------------------- parts, and live


def test_one_event_is_read_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(build_wrapped().to_bytes())
    whole = read_record(path)
    with RecordFile(path) as record:
        for event in whole.events:
            assert record.event(event.number) == event
        assert [record.event(number) for number in (-1, 0, 1, 9, 18, 2**64)] == [None] * 6
        assert record.survey() == (17, [2, 8])


def test_what_was_issued_since_is_read_without_looking_anything_up(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(build_wrapped().to_bytes())
    ops = {op.number: op for op in read_record(path).ops if op.number > 17 - 8}
    with RecordFile(path) as record:
        for after in (0, 9, 12, 16, 17, 99):
            last, issued = record.issued(after)
            assert last == 17
            assert sorted(one.number for one in issued) == [n for n in sorted(ops) if n > after]
            for one in issued:
                op = ops[one.number]
                assert one[1:4] == (op.seq, op.group_number, op.thread)
                assert (one.kind, bool(one.flags & Flag.ASYNC)) == (op.kind, op.is_async)


def test_bytes_arrays_and_mappings_are_read_alike(tmp_path: Path) -> None:
    data = GOLDEN.read_bytes()
    events = read_record(data).events
    with GOLDEN.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert read_record(mapped).events == events
    assert read_record(bytearray(data)).events == events
    assert read_record(memoryview(data)).events == events


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Path]:
    """A file into which a thread writes the stores of a run, one by one, for ever."""
    build = RecordBuilder(ring_count=64, form_count=80, parked_count=8, strings_nbytes=256)
    group = build.add_group("dp")
    build.issue("barrier", group)
    for index in range(1_000):
        build.end(build.issue("all_reduce", group, at_ns=index), after_ns=1)
    path = tmp_path / "rank00000.ddr"
    path.write_bytes(build.torn(0))
    done = threading.Event()

    def write() -> None:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            for offset, word in build.stores:
                mapped[offset : offset + len(word)] = word
                if done.is_set():
                    return

    thread = threading.Thread(target=write)
    thread.start()
    yield path
    done.set()
    thread.join()


def test_a_record_is_read_while_it_is_written(writer: Path) -> None:
    newest = 0
    deadline = time.monotonic() + 120
    while newest < 1_001 and time.monotonic() < deadline:
        record = read_record(writer)
        numbers = [event.number for event in record.events]
        assert numbers == sorted(set(numbers))
        # The reader may be behind the writer; what it gives has no hole but for the parked one.
        ring = [number for number in numbers if number > 1]
        assert ring == list(range(ring[0], ring[-1] + 1)) if ring else True
        assert newest <= max(numbers, default=0)
        newest = max(numbers, default=0)
        if newest > 1:
            assert numbers[0] == 1 or ring[0] == 2
            assert all(op.group is not None for op in record.ops)
    assert newest == 1_001


def test_four_thousand_ops_are_read_in_a_moment() -> None:
    build = RecordBuilder(ring_count=4096, form_count=5120, strings_nbytes=4096)
    group = build.add_group("dp")
    for index in range(4_200):
        number = build.issue("all_reduce", group, stack=[("train.py", 8, "step")])
        build.end(number, after_ns=index)
    data = build.to_bytes()
    times = []
    for _ in range(3):
        begin = time.process_time()
        assert len(read_record(data).events) == 4096
        times.append(time.process_time() - begin)
    # 30 ms alone on a core; a reader that is quadratic takes seconds.
    assert min(times) < 0.5
