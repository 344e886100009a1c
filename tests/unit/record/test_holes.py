"""What a record has reserved and never used is given back; what was written is still there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import distdbg as dist
from distdbg.diagnose.load.run_folder import load_run
from distdbg.record.holes import give_back


def used_nbytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_pages_of_zeros_become_holes_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 4 << 20)
        for at in (0, 1 << 20, (4 << 20) - 1):
            file.seek(at)
            file.write(b"x")
    content, before = path.read_bytes(), used_nbytes(path)
    give_back(path)
    assert path.read_bytes() == content
    assert before >= 4 << 20
    assert used_nbytes(path) <= 3 * (64 << 10)


def test_what_is_no_file_of_ours_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(bytes(1 << 20))
    link = tmp_path / "link"
    link.symlink_to(target)
    before = used_nbytes(target)
    for path in (link, tmp_path / "none", tmp_path):
        give_back(path)
    assert used_nbytes(target) == before


def test_the_record_of_a_job_that_ended_well_takes_a_tenth(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path / "run"))

    def program() -> None:
        for _ in range(100):
            dist.all_reduce(np.ones(2))

    dist.run_threads(program, 2, timeout_s=60)
    for record in (tmp_path / "run").glob("rank*.ddr"):
        assert used_nbytes(record) < record.stat().st_size / 10
    session = load_run(tmp_path / "run")
    assert [len(log.ops) for log in session.ranks.values()] == [100, 100]
