from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.client.live_runs import LiveRun, choose_run
from distdbg.diagnose.load.run_folder import run_name
from distdbg.errors import UsageError
from distdbg.record.folders import attempt_folder, record_name
from distdbg.record.header import read_opening
from distdbg.record.run_summary import summarize_run, summarize_runs
from distdbg.record.source import ByteSource
from tests.support.record_builder import RecordBuilder


def save(folder: Path, *, ranks: int = 2, world_size: int = 2) -> Path:
    attempt = attempt_folder(folder, 0)
    attempt.mkdir(parents=True)
    for rank in range(ranks):
        build = RecordBuilder(rank=rank, world_size=world_size)
        (attempt / record_name(rank)).write_bytes(build.to_bytes())
    return folder


def test_a_run_is_its_script_its_ranks_and_its_age(tmp_path: Path) -> None:
    run = save(tmp_path / "20260101-a")
    with ByteSource(attempt_folder(run, 0) / record_name(0)) as source:
        began_ns = read_opening(source).header.wall_ns
    text = summarize_run(run, now_ns=began_ns + 200 * 10**9)
    assert text == "20260101-a  train.py, 2 ranks, 3 min 20 s ago"


def test_what_is_elsewhere_or_damaged_is_said_or_left_out(tmp_path: Path) -> None:
    assert "4 ranks (0-1 here)" in summarize_run(save(tmp_path / "a", world_size=4))
    broken = save(tmp_path / "b", ranks=1)
    (attempt_folder(broken, 0) / record_name(0)).write_bytes(b"nothing")
    assert summarize_run(broken) == "b"
    assert summarize_run(tmp_path / "gone") == "gone"


def test_the_newest_come_first_and_not_all(tmp_path: Path) -> None:
    runs = [tmp_path / f"run-{number:02}" for number in range(11)]
    assert summarize_runs(runs) == [
        *(f"run-{number:02}" for number in range(10, 2, -1)), "... and 3 older runs"
    ]  # fmt: skip


def test_running_jobs_that_fit_are_listed_to_choose_by(tmp_path: Path) -> None:
    runs = [
        LiveRun(run=name, host="here", socket=None, folder=attempt_folder(save(tmp_path / name), 0))
        for name in ("2026-a", "2026-b")
    ]
    for asked in ("2026", None):
        with pytest.raises(UsageError) as caught:
            choose_run(runs, asked)
        assert [line.split(",")[:2] for line in caught.value.details] == [
            ["2026-a  train.py", " 2 ranks"], ["2026-b  train.py", " 2 ranks"],
        ]  # fmt: skip
    with pytest.raises(UsageError, match="no running job 'x' on this host"):
        choose_run(runs, "x")


def test_a_running_job_is_chosen_by_its_folder_as_well(tmp_path: Path) -> None:
    path = save(tmp_path / "run")
    name = run_name(path)
    runs = [LiveRun(run=each, host="here", socket=None) for each in (name, "other")]
    assert name
    assert choose_run(runs, str(path)).run == name
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no running job"):
        choose_run(runs, str(tmp_path / "empty"))
