"""The verdict in the folder of a run: private, whole, or not there."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.record.folders import VERDICT_NAME
from distdbg.record.verdict_file import write_verdict_file


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files that can grow to 100 bytes, as on a disk that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    reported = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, reported)


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_verdict_file(tmp_path, b"{}\n")
    finally:
        os.umask(before)
    assert (tmp_path / VERDICT_NAME).read_bytes() == b"{}\n"
    assert (tmp_path / VERDICT_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    write_verdict_file(tmp_path, b"{}\n")
    write_verdict_file(tmp_path, b" " * 101)
    assert [path.name for path in tmp_path.iterdir()] == [VERDICT_NAME]
    assert (tmp_path / VERDICT_NAME).read_bytes() == b"{}\n"
