"""What ranks print, read along: merged, numbered, bounded, and by whose it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distdbg.follow.answers.kept_log import KeptLog
from distdbg.record.line_times import LineTimesWriter

S = 10**9


class Files:
    """The kept output of a job, written as ranks and the launcher do."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.times: dict[Path, LineTimesWriter] = {}

    def write(
        self, rank: int, text: str, at_s: float, *, host: str = "", local: int | None = None
    ) -> None:
        folder = self.run / "logs" / host / "attempt_0" / str(rank if local is None else local)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "stdout.log"
        with path.open("a") as file:
            file.write(text)
        os.utime(path, (at_s, at_s))
        writer = self.times.setdefault(path, LineTimesWriter(path, rank))
        writer.look(int(at_s * S), is_last=True)

    def close(self) -> None:
        for writer in self.times.values():
            writer.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    found = Files(tmp_path)
    yield found
    found.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[KeptLog]:
    found = KeptLog(tmp_path, 0)
    yield found
    found.close()


def tell(log: KeptLog, at_s: float, **more: Any) -> dict[str, Any]:
    return log.describe({0, 1}, now_ns=int(at_s * S), wall_ns=int(at_s * S), **more)


def texts(reported: dict[str, Any]) -> list[tuple[list[int], str]]:
    return [(line["ranks"], line["text"]) for line in reported["lines"]]


def test_lines_of_ranks_are_merged_and_told_once(files: Files, log: KeptLog) -> None:
    files.write(0, "begin\nzero\n", 100.0)
    files.write(1, "begin\none\n", 100.2)
    reported = tell(log, 105)
    assert texts(reported) == [([0, 1], "begin"), ([0], "zero"), ([1], "one")]
    files.write(1, "more\nhalf", 106.0)
    later = tell(log, 110, after=reported["next"])
    assert texts(later) == [([1], "more")]
    assert texts(tell(log, 111, after=later["next"])) == []
    assert texts(tell(log, 111, only={0})) == [([0, 1], "begin"), ([0], "zero")]
    assert texts(tell(log, 111, most=1)) == [([1], "more")]


def test_output_of_other_hosts_in_the_same_folder_is_theirs(files: Files, log: KeptLog) -> None:
    files.write(0, "mine\n", 100.0, host="n14", local=0)
    files.write(2, "theirs\n", 100.0, host="n15", local=0)
    assert texts(tell(log, 105)) == [([0], "mine")]


def test_of_long_output_the_end_is_read(files: Files, log: KeptLog) -> None:
    files.write(0, "".join(f"line {n}\n" for n in range(100_000)), 100.0)
    reported = tell(log, 105, most=2000)
    assert texts(reported)[-1] == ([0], "line 99999")
    assert 1000 < len(reported["lines"]) <= 2000
    files.write(0, "x" * 5_000_000 + "\nlast\n", 106.0)
    assert texts(tell(log, 110, after=reported["next"]))[-1] == ([0], "last")


def test_files_are_let_go_of_when_nobody_asks_and_read_on_from_there(
    files: Files, log: KeptLog
) -> None:
    files.write(0, "one\n", 100.0)
    reported = tell(log, 105)
    log.rest(int(300 * S))
    files.write(0, "two\n", 299.0)
    assert texts(tell(log, 305, after=reported["next"])) == [([0], "two")]


def test_a_progress_bar_is_its_last_state(files: Files, log: KeptLog) -> None:
    files.write(0, "10%\r50%\r100%\n", 100.0)
    assert texts(tell(log, 105)) == [([0], "100%")]


def test_where_nothing_is_kept_it_is_said(log: KeptLog) -> None:
    reported = tell(log, 100)
    assert not reported["is_kept"]
    assert "--redirects 3" in reported["why"]
