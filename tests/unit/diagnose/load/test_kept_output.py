"""What ranks printed last is part of the session of their run."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.diagnose.load.kept_output import add_kept_output
from distdbg.diagnose.session import RankLog, Session
from distdbg.record.line_times import LineTimesWriter


@pytest.fixture
def session() -> Session:
    return Session(source="run", attempt=0, ranks={rank: RankLog(rank=rank) for rank in range(2)})


def _write(folder: Path, text: str, name: str = "stderr.log") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_the_last_lines_of_both_streams_are_kept(tmp_path: Path, session: Session) -> None:
    start = tmp_path / "run" / "logs" / "attempt_0"
    _write(start / "0", "one\ntwo\n")
    _write(start / "0", "hello\n", "stdout.log")
    _write(start.with_name("attempt_1") / "0", "of another start\n")

    add_kept_output(session, [tmp_path / "run" / "attempt_0"])

    found = [(line.rank, line.source, line.text) for line in session.lines]
    assert found == [
        (0, "stdout.log:1", "hello"),
        (0, "stderr.log:1", "one"),
        (0, "stderr.log:2", "two"),
    ]


def test_the_folder_that_log_dir_named_is_found_and_the_rank_is_that_of_the_job(
    tmp_path: Path, session: Session
) -> None:
    path = _write(tmp_path / "kept" / "attempt_0" / "0", "boom\n")
    writer = LineTimesWriter(path, 1)
    writer.look(10**9, is_last=True)
    writer.close()
    run = tmp_path / "run"
    run.mkdir()
    (run / "logs.elsewhere").write_text(str(tmp_path / "kept"))

    add_kept_output(session, [run])

    assert [(line.rank, line.text) for line in session.lines] == [(1, "boom")]


def test_of_much_output_the_end_is_read(tmp_path: Path, session: Session) -> None:
    lines = "".join(f"line {at}\n" for at in range(100_000))
    _write(tmp_path / "logs" / "attempt_0" / "0", lines)

    add_kept_output(session, [tmp_path])

    assert len(session.lines) == 40
    assert session.lines[-1].text == "line 99999"


@pytest.mark.parametrize("text", ["", "\0", "/nowhere", "x" * 5000])
def test_a_folder_that_is_not_there_is_no_fault(
    text: str, tmp_path: Path, session: Session
) -> None:
    (tmp_path / "logs.elsewhere").write_text(text)

    add_kept_output(session, [tmp_path])

    assert session.lines == []
