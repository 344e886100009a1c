"""Files that have nothing at the moment, as /proc/kmsg, which is a regular file by its mode."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from distdbg.record.error_file import read_error_file
from distdbg.record.line_file import read_lines
from distdbg.record.regular_file import read_some
from distdbg.record.stack_file import crash_name, read_crash


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[BinaryIO]:
    ends = os.pipe2(os.O_NONBLOCK)

    def open_empty(path: Path) -> BinaryIO:
        return open(ends[0], "rb", closefd=False)

    for name in ("error_file", "line_file", "stack_file"):
        monkeypatch.setattr(f"distdbg.record.{name}.open_regular", open_empty)
    with open_empty(Path()) as file:
        yield file
    for fd in ends:
        os.close(fd)


def test_a_file_that_has_nothing_at_the_moment_reads_as_empty(
    empty: BinaryIO, tmp_path: Path
) -> None:
    for name in ("error.json", "a.lines", crash_name(0)):
        (tmp_path / name).touch()
    assert read_some(empty, 8) == b""
    assert read_error_file(tmp_path / "error.json") is None
    assert list(read_lines(tmp_path, "*.lines")) == []
    assert read_crash(tmp_path, 0) == ""
