"""Records that come, grow, tear, change and vanish under the eyes of the agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.errors import RecordError
from distdbg.follow.findings import Findings
from distdbg.follow.roster import Roster
from distdbg.follow.tail import RecordTail
from distdbg.follow.watched_rank import WatchedRank, name_op, show_site
from distdbg.record.folders import record_name
from distdbg.record.rank_state import RankState
from tests.support.record_builder import RecordBuilder

SITE = [("/home/ada/train.py", 88, "step")]


def build(rank: int = 0, host: str = "n14") -> RecordBuilder:
    # No process has this number.
    found = RecordBuilder(rank=rank, world_size=2, host=host, pid=2**22 + rank + 1)
    found.add_group("dp", ranks="0-1", size=2, rank=rank)
    return found


def put(folder: Path, builder: RecordBuilder, rank: int = 0) -> Path:
    path = folder / record_name(rank)
    path.write_bytes(builder.to_bytes())
    return path


@pytest.fixture
def tail(tmp_path: Path) -> Iterator[RecordTail]:
    found = RecordTail(tmp_path, "n14")
    yield found
    found.close()


def test_records_of_this_host_are_found_and_no_others(tail: RecordTail, tmp_path: Path) -> None:
    put(tmp_path, build(0), 0)
    put(tmp_path, build(1, host="n15"), 1)
    (tmp_path / "rank00002.ddr").write_bytes(b"half")
    (tmp_path / "rank00003.stacks").write_bytes(b"")
    assert tail.scan() == [0]
    assert tail.scan() == []
    put(tmp_path, build(2), 2)
    assert tail.scan() == [2]
    assert sorted(tail.records) == [0, 2]


def test_a_record_that_is_replaced_or_removed_is_another_one(
    tail: RecordTail, tmp_path: Path
) -> None:
    path = put(tmp_path, build())
    tail.scan()
    draft = put(tmp_path, build(), 7)
    draft.rename(path)
    assert tail.scan() == [0]
    path.unlink()
    assert tail.scan() == [0]
    assert not tail.records
    tmp_path.joinpath("x").mkdir()
    assert RecordTail(tmp_path / "nowhere", "n14").scan() == []


def test_a_record_that_is_cut_short_says_so_and_kills_nobody(
    tail: RecordTail, tmp_path: Path
) -> None:
    path = put(tmp_path, build())
    tail.scan()
    path.write_bytes(path.read_bytes()[:4100])
    with pytest.raises(RecordError):
        tail.records[0].pulse()


def test_where_a_rank_stands_is_the_call_that_waits(tail: RecordTail, tmp_path: Path) -> None:
    builder = build()
    done = builder.issue("all_reduce", stack=SITE)
    builder.end(done, after_ns=10)
    builder.issue("all_gather", stack=SITE, is_async=True)
    put(tmp_path, builder)
    tail.scan()
    current_ops = tail.records[0].current_ops()
    assert current_ops.is_in
    assert not current_ops.is_waiting
    waits = builder.issue("barrier", stack=SITE)
    put(tmp_path, builder)
    current_ops = tail.records[0].current_ops()
    assert current_ops.is_waiting
    assert current_ops.op is not None
    assert name_op(current_ops.op) == "barrier #3 on group 'dp'"
    builder.end(waits, after_ns=5)
    put(tmp_path, builder)
    tail.scan()
    assert [op.name for op in tail.records[0].in_flight()] == ["all_gather"]


def test_the_line_of_a_rank_has_the_name_that_the_program_gives_its_op(
    tail: RecordTail, tmp_path: Path
) -> None:
    builder = build()
    builder.issue("all_reduce", stack=SITE, comm="backward of all_gather at train.py:31")
    put(tmp_path, builder)
    tail.scan()
    watched = WatchedRank(rank=0, host="n14", pid=1, current_ops=tail.records[0].current_ops())
    op = "all_reduce #1 on group 'dp' (backward of all_gather at train.py:31)"
    assert watched.row(5).op == op


def test_an_async_op_that_a_thread_waits_for_is_where_the_rank_is(
    tail: RecordTail, tmp_path: Path
) -> None:
    builder = build()
    first = builder.issue("all_gather", stack=SITE, is_async=True)
    builder.issue("all_reduce", stack=SITE, is_async=True)
    put(tmp_path, builder)
    tail.scan()
    assert not tail.records[0].current_ops().is_waiting
    builder.wait(first, since_ns=5, stack=[("/home/ada/train.py", 95, "step")])
    put(tmp_path, builder)
    current_ops = tail.records[0].current_ops()
    assert current_ops.is_waiting
    assert current_ops.op is not None
    assert current_ops.op.number == first
    assert show_site(current_ops.site or current_ops.op.stack[0]) == "train.py:95 (step)"
    builder.end_wait()
    put(tmp_path, builder)
    assert not tail.records[0].current_ops().is_waiting


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_torn_record_gives_what_is_whole(tail: RecordTail, tmp_path: Path, share: float) -> None:
    builder = build()
    for _ in range(20):
        builder.end(builder.issue("all_reduce", stack=SITE), after_ns=10)
    path = tmp_path / record_name(0)
    path.write_bytes(builder.torn(int(len(builder.stores) * share)))
    tail.scan()
    tail.records[0].current_ops()
    tail.records[0].texts(0)


def test_a_rank_whose_process_is_gone_is_told_by_its_last_words(tmp_path: Path) -> None:
    roster = Roster(tmp_path, "n14")
    put(tmp_path, build())
    assert roster.tick(10**18) == {0}
    (row,) = roster.rows(10**18)
    assert (row.rank, row.state, row.host) == (0, RankState.DEAD, "n14")
    assert row.why == "is gone; how it ended is unknown"
    assert roster.is_over()
    roster.close()


def test_findings_are_taken_once_and_again_from_a_new_record(tmp_path: Path) -> None:
    roster, findings = Roster(tmp_path, "n14"), Findings()
    builder = build()
    builder.find('{"type": "MismatchError", "what": "all_reduce #1 differs"}', 1)
    put(tmp_path, builder)
    roster.tick(10**18)
    assert [found["what"] for found in findings.look(roster)] == ["all_reduce #1 differs"]
    assert findings.look(roster) == []
    assert len(findings.since(0)) == 1
    roster.close()
