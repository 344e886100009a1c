"""What a person sees of a job that fails: blocks of tracebacks, one line per victim, one report."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from distdbg.testing.jobs import RunningJob

pytestmark = pytest.mark.ranks

StartJob = Callable[..., RunningJob]
WriteScript = Callable[[str], str]

SLEEPER = """
import datetime, os, time
import numpy as np
import distdbg as dist

def load():
    time.sleep(300)

dist.init_process_group(timeout=datetime.timedelta(seconds=8))
x = np.zeros(4)
for _ in range(3):
    dist.all_reduce(x)
if os.environ["RANK"] == "2":
    load()
dist.all_reduce(x)
"""


def test_each_traceback_is_one_block(start_job: StartJob, write_script: WriteScript) -> None:
    script = write_script("def step():\n    raise ValueError('no data')\nstep()\n")
    done = start_job("--nproc-per-node=3", script).wait()
    lines = [line for line in done.err.splitlines() if line.startswith("[rank ")]
    starts = [
        n for n, line in enumerate(lines) if line.endswith("Traceback (most recent call last):")
    ]
    assert len(starts) == 3, done.err
    for start in starts:
        rank = lines[start].partition("]")[0]
        end = next(n for n in range(start, len(lines)) if "ValueError: no data" in lines[n])
        assert all(line.startswith(f"{rank}] ") for line in lines[start : end + 1]), done.err


@pytest.mark.slow
def test_frames_of_the_package_are_hidden_unless_they_are_asked_for(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(
        "import numpy as np, os, distdbg as dist\n"
        "dist.init_process_group()\n"
        "rank = int(os.environ['RANK'])\n"
        "dist.all_reduce(np.zeros(4 + rank))\n"
    )
    done = start_job("--nproc-per-node=2", script).wait()
    assert done.report[0].startswith("MISMATCH: "), done.err
    assert "runtime/group.py" not in done.err
    assert done.err.count("differs between ranks") <= 3  # one per rank that differs, and the report
    full = start_job("--nproc-per-node=2", script, environ={"DISTDBG_TRACEBACK": "full"}).wait()
    assert "runtime/group.py" in full.err


@pytest.mark.slow
def test_an_op_timeout_says_where_the_rank_is_that_did_not_come(
    start_job: StartJob, write_script: WriteScript
) -> None:
    job = start_job("--nproc-per-node=4", write_script(SLEEPER), has_agent=True)
    done = job.wait()
    assert done.code == 1, done
    assert re.match(r"HUNG: rank 2 was asleep in load\(\) at \S+\.py:7$", done.report[0]), done.err
    assert "waited 8.0 s for rank 2 of 0-3, asleep in load() at " in done.report[1], done.err
    assert done.report[-1].startswith("  next: distdbg analyze "), done.err
    victims = [line for line in done.err.splitlines() if line.startswith("[rank")]
    assert 1 <= len(victims) <= 3, done.err  # lines that come together are one
    assert all("OpTimeout at " in line and "waited 8.0 s for rank 2" in line for line in victims)
