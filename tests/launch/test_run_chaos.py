"""Jobs that lose somebody at a random moment: each of them is gone without a trace."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.jobs import RunningJob, running

pytestmark = [pytest.mark.ranks, pytest.mark.slow, pytest.mark.stress]

PROGRAM = str(Path(__file__).with_name("programs") / "steps.py")
#: Draws are by number, the same each time. These have every victim, four pairs of them and every
#: signal, from the start of the launcher to the end of the job; `make stress` asks for a hundred.
CHOSEN = (1, 2, 3, 7, 8, 9, 10, 14, 16, 18, 24, 25)
JOBS = range(int(os.environ.get("STRESS_JOBS", "0"))) or CHOSEN
LIMIT_S = 60.0
#: How a process is known by its command line; "launcher" is the one that was started.
WORDS = {"warden": "distdbg-warden of", "agent": "-P -m distdbg.agent", "rank": f"-u {PROGRAM}"}


def pids_of(job: RunningJob, victim: str) -> list[int]:
    if victim == "launcher":
        return [job.process.pid]
    return [pid for pid, command in job.processes().items() if WORDS[victim] in command]


def lose_somebody(number: int) -> list[str]:
    """Run one job; what is left of it, with what has happened to it."""
    choice = random.Random(number)
    after_s = choice.uniform(0.0, 1.8)
    victims = choice.sample(["launcher", "warden", "agent", "rank"], choice.choice([1, 1, 1, 2]))
    signum = choice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    if signum != signal.SIGKILL:
        victims = ["launcher"]
    story = f"job {number}: {signum.name} to {' and '.join(victims)} after {after_s:.3f} s"
    folder = Path(tempfile.mkdtemp(prefix="job-"))
    flags = ["--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=1"]
    try:
        with running([*flags, PROGRAM, "30"], folder, has_agent=True) as job:
            time.sleep(after_s)  # the random moment
            for pid in [pid for victim in victims for pid in pids_of(job, victim)[:1]]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)
            try:
                done = job.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                return [f"{story}: still runs: {job.processes()}"]
            left = job.leftovers(3.0)
            # A rank that is interrupted while Python starts has a traceback of its own.
            if done.code == 70 or re.search(r'File "[^"]*distdbg/launch/', done.err):
                left.append(done.err)
            return [f"{story}, code {done.code}: {line}" for line in left]
    finally:
        shutil.rmtree(folder)


def test_jobs_that_die_at_random_moments_leave_nothing() -> None:
    with ThreadPoolExecutor(2) as pool:
        left: Iterator[list[str]] = pool.map(lose_somebody, JOBS)
        lines = [line for lines in left for line in lines]
    assert not lines, "\n".join(lines)
