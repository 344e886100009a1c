"""Real jobs whose ranks wait in init_process_group for ranks that do not come, and are ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.record.join_calls import read_join_calls
from tests.support.jobs import Done, RunningJob

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

TOO_MANY = """\
import distdbg as dist
def connect(size):
    dist.init_process_group(world_size=size)
connect(3)
"""
LATE = """\
import os
import time
import distdbg as dist
if os.environ["RANK"] == "1":
    time.sleep(600)  # the hang itself; the test ends it
dist.init_process_group()
"""


def end(
    start_job: Callable[..., RunningJob], folder: Path, text: str, waiting: int, how: signal.Signals
) -> Done:
    """Once so many ranks have reached the store, and have waited for long enough to be told."""
    (folder / "meet.py").write_text(text)
    job = start_job("--nproc-per-node=2", str(folder / "meet.py"), has_agent=True, cwd=folder)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert job.process.poll() is None, job.wait()
        calls = read_join_calls(job.run_folder / "attempt_0").values()
        there = [one.since_ns for one in calls if one.is_connected]
        if len(there) == waiting and time.monotonic_ns() - max(there) > 1_500_000_000:
            job.send(how)
            return job.wait()
        time.sleep(0.05)  # a file is looked at again
    raise AssertionError("the ranks have not come so far")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_world_that_is_too_large_is_told_whatever_ends_the_job(
    start_job: Callable[..., RunningJob], tmp_path: Path, how: signal.Signals
) -> None:
    done = end(start_job, tmp_path, TOO_MANY, 2, how)
    assert done.code == 128 + how
    assert done.report[0].startswith("STOPPED: interrupted by "), done.err
    assert " after all 2 ranks had waited " in done.report[0]
    assert done.report[0].endswith(
        " in init_process_group at meet.py:3 (connect) for rank 2, which was not started"
    )
    assert done.report[2] == (
        "  hint: init_process_group(world_size=3), but 2 ranks were started (WORLD_SIZE=2)"
    )
    assert done.report[3].startswith("  ranks 0-1 at meet.py:3 (connect): dist.init_process_group(")


def test_a_rank_that_does_not_call_it_is_told_with_the_line_of_the_others(
    start_job: Callable[..., RunningJob], tmp_path: Path
) -> None:
    done = end(start_job, tmp_path, LATE, 1, signal.SIGTERM)
    assert " after rank 0 had waited " in done.report[0], done.err
    assert " in init_process_group at meet.py:6 (<module>) for rank 1" in done.report[0]
