"""Real jobs that are ended while a rank keeps the others waiting: what `analyze` makes of them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distdbg.record.observations import UNREAD, Observation, read_sightings
from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import limit_ns
from tests.support.jobs import RunningJob

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

PROGRAM = """\
import sys
import time
import numpy as np
import distdbg as dist
def load():
    time.sleep(float(sys.argv[1]))  # the hang itself; the test ends it
dist.init_process_group(timeout=float(sys.argv[2]))
x = np.ones(4)
dist.all_reduce(x)
if dist.get_rank() == 2:
    load()
dist.all_reduce(x)
"""


@pytest.fixture
def hang(start_job: Callable[..., RunningJob], tmp_path: Path) -> Callable[..., RunningJob]:
    def start(*flags: str, timeout_s: float = 600.0) -> RunningJob:
        program = tmp_path / "slp.py"
        program.write_text(PROGRAM)
        return start_job(
            "--nproc-per-node=4", "--shutdown-timeout=5", *flags,
            str(program), "600", str(timeout_s),
            has_agent=True,
            cwd=tmp_path,
        )  # fmt: skip

    return start


def await_sleep(job: RunningJob, least_s: float = 0.0, run: Path | None = None) -> None:
    """Until the agent has seen where rank 2 is, for so long; `run`: other than the latest of all jobs."""
    deadline = time.monotonic() + 90.0
    while time.monotonic() < deadline:
        assert job.process.poll() is None, job.wait()
        attempt = (run or job.run_folder) / "attempt_0"
        folder = attempt if attempt.is_dir() else run or job.run_folder
        for seen in read_sightings(folder):
            age_s = time.monotonic() - seen.since_ns / 1e9
            if seen.rank == 2 and seen.state is RankState.ASLEEP and age_s >= least_s:
                return
        time.sleep(0.1)  # a file is looked at again
    raise AssertionError("nobody saw rank 2 asleep")


def analyze(run: Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "distdbg", "analyze", "--json", str(run)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, json.loads(done.stdout)


def at_least(seconds: int, what: str) -> bool:
    """Whether the ranks waited so long; a busy machine adds to it."""
    found = re.match(r"ranks 0-1,3 waited (?:(\d+) min ?)?(?:(\d+) s)? for ", what)
    assert found, what
    return 60 * int(found[1] or 0) + int(found[2] or 0) >= seconds


def root_of(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["findings"][document["verdict"]["root"]]
    return found


def test_a_hung_job_that_is_ended_is_told_by_the_rank_it_hung_on(
    hang: Callable[..., RunningJob], tmp_path: Path
) -> None:
    # All at once: half a minute is what makes a sleep a hang.
    reported = {
        signal.SIGTERM: "stopped by SIGTERM",
        signal.SIGINT: "stopped by Ctrl-C (SIGINT)",
        signal.SIGKILL: "killed",
    }
    jobs: dict[signal.Signals, tuple[RunningJob, Path]] = {}
    for number in reported:
        run = tmp_path / number.name
        jobs[number] = hang("--run-dir", str(run)), run
    for job, run in jobs.values():
        await_sleep(job, limit_ns(RankState.ASLEEP) / 1e9 + 1, run)
    for number, (job, _) in jobs.items():
        job.send(number)
    for number, (job, run) in jobs.items():
        assert job.wait().code == (128 + number if number != signal.SIGKILL else -number)
        assert job.leftovers() == []  # the ranks of a killed launcher end a moment later
        code, document = analyze(run)
        root = root_of(document)
        assert at_least(30, root["what"])
        assert root["what"].endswith(
            f" for rank 2, asleep in load() at slp.py:6; then the job was {reported[number]}"
        )
        assert (root["ranks"], root["severity"], code) == ([2], "error", 1)
        follows = [one["kind"] for one in root["follows"]]
        assert ("stopped" in follows) == (number != signal.SIGKILL)


def test_a_job_that_is_ended_soon_was_not_hung(hang: Callable[..., RunningJob]) -> None:
    job = hang()
    await_sleep(job)
    job.send(signal.SIGTERM)
    done = job.wait()
    begin = "STOPPED: interrupted by SIGTERM after ranks 0-1,3 had waited "
    assert done.report[0].startswith(begin), done.err
    assert done.report[0].endswith(
        "in all_reduce #2 on group 'world' (slp.py:12) for rank 2, asleep in load() at slp.py:6"
    )
    lines = [line.strip() for line in done.report]
    assert "rank 2 at slp.py:11 (<module>): load()" in lines
    assert lines[lines.index("rank 2 at slp.py:11 (<module>): load()") + 1] == (
        "under `if dist.get_rank() == 2` (line 10)"
    )
    assert "ranks 0-1,3 at slp.py:12 (<module>): dist.all_reduce(x)" in lines
    code, document = analyze(job.run_folder)
    root = root_of(document)
    assert root["what"].startswith("the job was stopped by SIGTERM; ranks 0-1,3 had waited ")
    assert (root["severity"], code) == ("note", 0)


def test_an_op_that_timed_out_says_where_the_rank_was(hang: Callable[..., RunningJob]) -> None:
    job = hang(timeout_s=10.0)
    assert job.wait().code == 1
    code, document = analyze(job.run_folder)
    root = root_of(document)
    assert at_least(10, root["what"])
    assert root["what"].endswith(" for rank 2, asleep in load() at slp.py:6; then the op timed out")
    assert (root["ranks"], root["severity"], code) == ([2], "error", 1)


LATE = """\
import os
import time
import distdbg as dist
def load():
    time.sleep(600)  # the hang itself; the launcher ends it
if os.environ["RANK"] == "1":
    load()
dist.init_process_group(timeout=25)
"""


def test_a_rank_that_never_joins_is_told_with_where_it_is(
    start_job: Callable[..., RunningJob], tmp_path: Path
) -> None:
    program = tmp_path / "late.py"
    program.write_text(LATE)
    done = start_job(
        "--nproc-per-node=3", "--shutdown-timeout=5", str(program), has_agent=True, cwd=tmp_path
    ).wait()  # fmt: skip
    assert done.code == 1
    assert done.report[0] == (
        "HUNG: rank 1 never joined, asleep in load() at late.py:5; ranks 0,2 waited for it"
    ), done.err
    assert "[ranks 0,2] RendezvousError at late.py:8: rank 1 did not join" in done.err


FEEDS = """\
import queue
import subprocess
import sys
import threading
import time
import numpy as np
import distdbg as dist
def read(batches):
    raise KeyError("caption")
def from_thread():
    batches = queue.Queue()
    threading.Thread(target=read, args=(batches,), name="prefetch").start()
    batches.get()
def from_child():
    child = subprocess.Popen([sys.executable, "-c", "print('x' * 1000000)"], stdout=subprocess.PIPE)
    child.wait()
dist.init_process_group(timeout=600)
x = np.ones(4)
dist.all_reduce(x)
if dist.get_rank() == 2:
    {"thread": from_thread, "child": from_child}[sys.argv[1]]()
dist.all_reduce(x)
"""


@pytest.mark.parametrize(
    ("feed", "line", "fact"),
    [
        (
            "thread",
            "asleep in from_thread() at feeds.py:13",
            "its thread 'prefetch' raised KeyError: 'caption' at feeds.py:9 (read)",
        ),
        ("child", "asleep in from_child() at feeds.py:16", "pipe that the rank does not read"),
    ],
)
def test_what_nobody_can_wake_is_a_hang_at_any_age(
    start_job: Callable[..., RunningJob], tmp_path: Path, feed: str, line: str, fact: str
) -> None:
    program = tmp_path / "feeds.py"
    program.write_text(FEEDS)
    job = start_job(
        "--nproc-per-node=4",
        "--shutdown-timeout=5",
        str(program),
        feed,
        has_agent=True,
        cwd=tmp_path,
    )
    # A closer look says why it sleeps; that takes a moment, and is far below what makes a sleep a hang.
    deadline = time.monotonic() + 60.0
    while not any(
        seen.rank == 2 and ("no other Python thread" in seen.why or UNREAD in seen.why)
        for seen in seen_of(job)
    ):
        assert time.monotonic() < deadline, "nobody saw why rank 2 sleeps"
        time.sleep(0.1)  # a file is looked at again
    job.send(signal.SIGINT)
    said = job.wait().err
    assert re.search(
        rf"^HUNG: ranks 0-1,3 waited .* for rank 2, {re.escape(line)}", said, re.MULTILINE
    )
    assert fact in said
    code, document = analyze(job.run_folder)
    assert (code, root_of(document)["ranks"], root_of(document)["severity"]) == (1, [2], "error")


def seen_of(job: RunningJob) -> list[Observation]:
    folder = job.run_folder / "attempt_0"
    return list(read_sightings(folder)) if folder.is_dir() else []
