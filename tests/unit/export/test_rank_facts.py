"""A rank as facts, from a record that was written by hand."""

from __future__ import annotations

import json
import time
from pathlib import Path

from distdbg.export.metrics import families
from distdbg.export.metrics.rank_facts import RankReader
from distdbg.export.metrics.samples import RankSample
from distdbg.follow.roster import Roster
from tests.support.record_builder import RecordBuilder

HOST = "n01"


def builder() -> RecordBuilder:
    # No process has this number.
    words = {"rank": 3, "world_size": 4, "pid": 2**22 + 4}
    return RecordBuilder(counter_count=4, text_count=4, host=HOST, run="r", **words)


def read(
    folder: Path, record: RecordBuilder, suspicions: dict[int, int] | None = None
) -> RankSample:
    (folder / "rank00003.ddr").write_bytes(record.to_bytes())
    roster = Roster(folder, HOST, is_reported=True)
    try:
        roster.tick(time.monotonic_ns())
        (facts,) = RankReader().read(roster, time.monotonic_ns(), suspicions)
    finally:
        roster.close()
    return facts


def test_counters_are_told_by_label_kind_and_dtype(tmp_path: Path) -> None:
    record = builder()
    group = record.add_group("default_pg", size=4)
    record.count(0, group, "all_reduce", "float32", ended=7, nbytes=28, duration_ns=9, wait_ns=4)
    record.count(1, group, "barrier", ended=2)
    record.count(2, group, "broadcast")  # begun, and none has ended
    record.set_state(counter_count=3)
    counters = read(tmp_path, record).counters
    assert counters is not None
    first, second = counters
    assert (first.kind, first.group, first.group_size, first.dtype) == (
        "all_reduce",
        "world",
        4,
        "float32",
    )
    assert (first.ended, first.nbytes, first.duration_ns, first.wait_ns) == (7, 28, 9, 4)
    assert (second.kind, second.dtype, second.ended) == ("barrier", "", 2)


def test_of_open_groups_it_is_told_how_far_they_are(tmp_path: Path) -> None:
    record = builder()
    for desc, issued, ended, closed_ns in (("dp", 9, 8, 0), ("tp", 5, 5, 0), ("old", 7, 6, 1)):
        group = record.add_group(desc, size=2)
        record.set_group(group, issued_seq=issued, ended_seq=ended, closed_ns=closed_ns)
    facts = read(tmp_path, record)
    assert facts.seqs == {"dp": 9, "tp": 5}
    assert facts.in_flight == 0  # its process is gone


def test_words_of_the_rank_are_counted_by_check(tmp_path: Path) -> None:
    record = builder()
    for words in (
        {"type": "MismatchError", "what": "they differ"},
        {"type": "MismatchError", "what": "they differ again"},
        {"what": "ValueError: no data"},
    ):
        record.add_text(json.dumps(words))
    assert read(tmp_path, record).found == {"mismatch": 2}


def test_what_the_record_had_no_room_for_is_told(tmp_path: Path) -> None:
    record = builder()
    record.set_state(lost_sites=2, lost_counters=5)
    lost = read(tmp_path, record).lost
    assert (lost["sites"], lost["counters"], lost["strings"]) == (2, 5, 0)
    assert tuple(lost) == families.LOST


def test_a_rank_that_is_gone_is_not_up(tmp_path: Path) -> None:
    facts = read(tmp_path, builder())
    assert not facts.is_up
    assert facts.is_dead
    assert facts.rss_nbytes is None


def test_a_rank_that_makes_group_after_group_is_to_be_read_again(tmp_path: Path) -> None:
    record = builder()
    reader, roster = RankReader(), Roster(tmp_path, HOST, is_reported=True)
    path = tmp_path / "rank00003.ddr"
    try:
        for count, is_due in ((1, False), (33, True), (40, False), (72, True)):
            record.set_state(last_group=count)
            path.write_bytes(record.to_bytes())
            roster.tick(time.monotonic_ns())
            assert reader.is_due(roster) is is_due
            reader.read(roster, time.monotonic_ns())
    finally:
        roster.close()


def test_what_the_agent_has_found_itself_counts_with_the_suspicions_of_the_rank(
    tmp_path: Path,
) -> None:
    record = builder()
    record.add_text(json.dumps({"type": "LeakedWork", "what": "w"}))

    assert read(tmp_path, record).found == {"suspicion": 1}
    assert read(tmp_path, record, {3: 2, 4: 7}).found == {"suspicion": 3}
