"""Logs of jobs, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.diagnose.load.log_files import read_logs
from distdbg.diagnose.session import Session
from tests.unit.diagnose.load.read_logs import ReadLog


@pytest.fixture
def read(tmp_path: Path) -> ReadLog:
    def read(text: str) -> Session:
        path = tmp_path / "job.log"
        path.write_text(text + "\n")
        return read_logs([path], root=tmp_path)

    return read
