"""Reading a run for an export: one rank at a time, on one clock, what was asked for and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.diagnose.load.run_folder import load_run
from distdbg.errors import RecordError, UsageError
from distdbg.export.reading import OpenedRun, RunSelection, open_run
from distdbg.export.trace.moments import spans_of
from distdbg.record.folders import record_name
from tests.unit.export.small_job import BEGAN_NS, END_NS, US, WALL_NS, make_job


def read(run: OpenedRun) -> dict[int, list[int]]:
    """The seqs of each rank."""
    return {log.rank: log.ops.seq.tolist() for start in run.starts for log in start.read()}


def test_ranks_come_one_after_the_other_as_the_diagnosis_has_them(tmp_path: Path) -> None:
    run = open_run([make_job(tmp_path)])
    session = load_run(tmp_path)
    (start,) = run.starts
    for log in start.read():
        same = session.ranks[log.rank]
        assert log.ops.issued_ns == same.ops.issued_ns
        assert log.ops.peer == same.ops.peer
        assert log.offset_ns == same.offset_ns == WALL_NS - BEGAN_NS
        assert log.end == same.end
        assert [start.session.groups[at] for at in log.ops.group] == [
            session.groups[at] for at in same.ops.group
        ]
    assert start.session.ranks == {}
    assert run.counted.ranks == 3
    assert run.counted.ops == sum(len(log.ops) for log in session.ranks.values())
    assert run.name == "small"


def test_it_says_when_the_job_began_and_gave_its_last_sign_of_life(tmp_path: Path) -> None:
    (start,) = open_run([make_job(tmp_path)]).starts
    assert start.first_ns() == WALL_NS
    assert start.end_ns() == WALL_NS + END_NS


def test_only_the_chosen_ranks_are_read(tmp_path: Path) -> None:
    run = open_run([make_job(tmp_path)], RunSelection(ranks=frozenset({1, 9})))
    assert list(read(run)) == [1]
    assert [log.rank for log in run.starts[0].read_all()] == [0, 1, 2]
    assert run.counted.ranks == 1


def test_ranks_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing of ranks 7"):
        open_run([make_job(tmp_path)], RunSelection(ranks=frozenset({7})))


def test_a_window_keeps_what_was_in_flight_in_it(tmp_path: Path) -> None:
    make_job(tmp_path)
    window = RunSelection(since_ns=WALL_NS + 60 * US, until_ns=WALL_NS + 90 * US)
    run = open_run([tmp_path], window)
    (start,) = run.starts
    logs = {log.rank: log for log in start.read()}
    assert logs[0].ops.seq.tolist() == [2, 3, 1]
    assert logs[2].ops.seq.tolist() == [2, 3]


def test_a_span_that_reaches_into_the_window_keeps_both_ends(tmp_path: Path) -> None:
    make_job(tmp_path)
    window = RunSelection(
        since_ns=WALL_NS + 60 * US, until_ns=WALL_NS + 70 * US, ranks=frozenset({0})
    )
    (log,) = open_run([tmp_path], window).starts[0].read()
    (span,) = spans_of(log)
    assert (span.name, span.begin_ns, span.end_ns) == (
        "step 1",
        WALL_NS + 5 * US,
        WALL_NS + 95 * US,
    )
    assert len(log.notes) == 2


def test_the_last_while_counts_from_the_end_of_the_run(tmp_path: Path) -> None:
    run = open_run([make_job(tmp_path)], RunSelection(last_ns=1_000_000_000))
    assert read(run) == {0: [4], 1: [4], 2: []}


def test_each_start_of_a_job_has_ranks_of_its_own(tmp_path: Path) -> None:
    make_job(tmp_path / "attempt_0")
    make_job(tmp_path / "attempt_1", shift_ns=60_000_000_000)
    run = open_run([tmp_path])
    assert [(start.number, start.ranks) for start in run.starts] == [(0, (0, 1, 2)), (1, (0, 1, 2))]
    assert [start.first_ns() for start in run.starts] == [WALL_NS, WALL_NS + 60_000_000_000]
    (only,) = open_run([tmp_path], RunSelection(attempt=1)).starts
    assert only.number == 1
    with pytest.raises(UsageError, match="no start number 5"):
        open_run([tmp_path], RunSelection(attempt=5))


def test_a_record_that_is_gone_or_torn_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    make_job(tmp_path)
    (tmp_path / record_name(0)).write_bytes(b"no record")
    run = open_run([tmp_path])
    (tmp_path / record_name(1)).unlink()
    assert list(read(run)) == [2]
    assert any(record_name(0) in lack for lack in run.lacks())
    assert any(record_name(1) in lack for lack in run.lacks())


def test_a_folder_without_records_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.bin").write_bytes(bytes(100))
    with pytest.raises(RecordError):
        open_run([tmp_path])


def test_a_rank_that_never_had_a_record_is_there_by_its_end(tmp_path: Path) -> None:
    make_job(tmp_path)
    (tmp_path / record_name(1)).unlink()
    (start,) = open_run([tmp_path]).starts
    assert start.session.lacks == ["rank 1 left no record; only how it ended is known"]
    log = next(log for log in start.read() if log.rank == 1)
    assert log.end is not None
    assert log.end.ended_ns + log.offset_ns == WALL_NS + END_NS


def test_progress_is_told_after_each_rank(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    run = open_run([make_job(tmp_path)], on_progress=lambda *counts: reported.append(counts))
    read(run)
    assert reported == [(1, 3), (2, 3), (3, 3)]


def test_a_rank_of_which_there_is_nothing_is_said_where_it_is_wanted(tmp_path: Path) -> None:
    make_job(tmp_path)
    (tmp_path / record_name(2)).unlink()
    assert open_run([tmp_path]).lacks() == ["nothing is known of rank 2 of 3"]
    assert open_run([tmp_path], RunSelection(ranks=frozenset((0, 1)))).lacks() == []
