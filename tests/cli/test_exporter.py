"""`distdbg exporter --once` in process: where the metrics go."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from distdbg.cli.main import main
from tests.unit.export.small_job import make_job

WORDS = "distdbg_world_size{"


@pytest.fixture
def run(tmp_path: Path) -> str:
    folder = tmp_path / "run"
    folder.mkdir()
    return str(make_job(folder))


def test_the_metrics_of_a_run_are_a_file_that_anybody_may_read(tmp_path: Path, run: str) -> None:
    file = tmp_path / "run.prom"
    file.write_text("before")
    before = os.umask(0o022)
    try:
        assert main(["exporter", "--once", str(file), run]) == 0
    finally:
        os.umask(before)
    assert WORDS in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.prom"]


def test_a_link_to_a_file_stays_a_link(tmp_path: Path, run: str) -> None:
    link, file = tmp_path / "link.prom", tmp_path / "run.prom"
    link.symlink_to(file.name)
    for _ in range(2):  # a file that is made, and one that is there
        assert main(["exporter", "--once", str(link), run]) == 0
        assert link.is_symlink()
        assert WORDS in file.read_text()


def test_a_link_to_a_device_stays_a_link(tmp_path: Path, run: str) -> None:
    link = tmp_path / "out"
    link.symlink_to("/dev/null")
    assert main(["exporter", "--once", str(link), run]) == 0
    assert link.is_symlink()


def test_into_a_named_pipe_is_written(tmp_path: Path, run: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
        assert main(["exporter", "--once", str(path), run]) == 0
        assert WORDS in os.read(pipe, 1 << 20).decode()
    finally:
        os.close(pipe)
    assert path.is_fifo()


def test_a_file_that_cannot_be_written_is_an_error_in_a_line(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    assert main(["exporter", "--once", str(full), run]) == 2
    assert main(["exporter", "--once", str(tmp_path / "gone" / "x"), run]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"UsageError: --once {full}: cannot be written: No space left on device",
        f"UsageError: --once {tmp_path}/gone/x: there is no folder {tmp_path}/gone",
    ]
