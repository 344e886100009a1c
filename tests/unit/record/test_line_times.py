"""The index of a log file: when its lines were written."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from distdbg.record import line_times
from distdbg.record.line_times import LineTimesWriter, read_line_times, times_path

SECOND = 10**9


def write(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "stdout.log"
    path.touch()
    return path


def test_a_line_has_the_time_of_the_look_that_first_saw_it(log: Path) -> None:
    writer = LineTimesWriter(log, 7)
    writer.look(1 * SECOND)
    assert read_line_times(log) is None
    write(log, "one\n")
    writer.look(2 * SECOND)
    writer.look(3 * SECOND)
    write(log, "two\nthree\n")
    writer.look(4 * SECOND)
    writer.close()
    times = read_line_times(log)
    assert times is not None
    assert times.rank == 7
    assert [times.time_of(end) for end in (1, 4, 5, 14, 15)] == [
        2 * SECOND, 2 * SECOND, 4 * SECOND, 4 * SECOND, None,
    ]  # fmt: skip


def test_a_file_that_was_begun_anew_has_the_times_of_what_it_holds(log: Path) -> None:
    writer = LineTimesWriter(log, 0)
    write(log, "one\ntwo\n")
    writer.look(1 * SECOND)
    log.write_text("new\n")
    writer.look(2 * SECOND)
    writer.close()
    times = read_line_times(log)
    assert times is not None
    assert (list(times.wall_ns), list(times.nbytes)) == ([2 * SECOND], [4])


def test_an_index_stays_bounded_and_gets_coarser(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_times, "MAX_ENTRIES", 8)
    writer = LineTimesWriter(log, 0)
    for look in range(1, 61):
        write(log, ".")
        writer.look(look * line_times.LOOK_NS)
    writer.close()
    times = read_line_times(log)
    assert times is not None
    assert len(times.nbytes) <= 8
    assert times.nbytes[0] <= 16
    steps = [after - before for before, after in itertools.pairwise(times.nbytes)]
    assert max(steps) <= 16


def test_a_damaged_index_gives_what_is_whole(log: Path) -> None:
    writer = LineTimesWriter(log, 3)
    for second in (1, 2, 3):
        write(log, "x\n")
        writer.look(second * SECOND)
    writer.close()
    data = times_path(log).read_bytes()
    for end in range(len(data)):
        times_path(log).write_bytes(data[:end])
        times = read_line_times(log)
        assert times is None if end < 16 else len(times.nbytes) == (end - 16) // 16  # type: ignore[union-attr]
    times_path(log).write_bytes(b"\0" * 64)
    assert read_line_times(log) is None


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(log: Path) -> None:
    times_path(log).with_name(".stdout.times.new").mkdir()
    writer = LineTimesWriter(log, 0)
    write(log, "one\n")
    writer.look(1 * SECOND)
    writer.look(2 * SECOND)
    writer.close()
    assert read_line_times(log) is None
