"""`distdbg ps --all`: what is kept of runs that are over, and for how long."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import distdbg as dist
from distdbg.cli.main import main

if TYPE_CHECKING:
    import pytest


def test_kept_runs_are_listed_with_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("DISTDBG_RUN_DIR", raising=False)
    for _ in range(2):
        dist.run_threads(lambda: dist.all_reduce(np.ones(1)), 2, timeout_s=60)

    assert main(["ps", "--all"]) == 0
    title, heads, *rows, last = capsys.readouterr().out.splitlines()
    assert title.startswith(f"2 runs in {tmp_path}")
    assert heads.split()[:2] == ["run", "state"]
    assert heads.split()[-1] == "size"
    assert len(rows) == 2
    assert (
        rows[0].split()[0] > rows[1].split()[0]
        or rows[0].split()[0][:15] == rows[1].split()[0][:15]
    )
    for row in rows:
        assert row.split()[1] == "ended"
        assert "2 ranks" in row
    assert last.startswith("2 runs take ")
    assert "beyond 1.0 GiB (DISTDBG_RUNS_NBYTES), and after 30 days (DISTDBG_RUNS_DAYS)" in last


def test_without_runs_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("DISTDBG_RUNS_DAYS", "0")
    assert main(["ps", "--all"]) == 0
    assert capsys.readouterr().out == (
        "0 runs take 0 B; the oldest are removed beyond 1.0 GiB (DISTDBG_RUNS_NBYTES), "
        "when the next run starts\n"
    )
    assert main(["ps", "--all", "--json"]) == 2
    assert "--all takes neither a run nor --json" in capsys.readouterr().err
