"""What a person sees of a job that fails: blocks of tracebacks, one line per victim, one report."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Severity
from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.verdict import diagnose
from distdbg.record.rank_list import read_ranks
from tests.support.jobs import RunningJob

pytestmark = pytest.mark.ranks

StartJob = Callable[..., RunningJob]
WriteScript = Callable[[str], str]

SLEEPER = """
import os, time
import numpy as np
import distdbg as dist

def load():
    time.sleep(300)

dist.init_process_group()
x = np.zeros(4)
for _ in range(3):
    dist.all_reduce(x)
if os.environ["RANK"] == "2":
    load()
dist.all_reduce(x, timeout=8.0)
"""
#: The limit of the op, and what a busy machine adds to it.
EIGHT = r"waited (8\.\d|9\.\d|\d\d) s for rank 2"


def test_each_traceback_is_one_block(start_job: StartJob, write_script: WriteScript) -> None:
    script = write_script(
        "import os\n"
        "def step():\n    raise ValueError(f\"no data {int(os.environ['RANK']) // 2}\")\nstep()\n"
    )
    done = start_job("--nproc-per-node=4", script).wait()
    lines = [line for line in done.err.splitlines() if line.startswith("[rank")]
    starts = [
        n for n, line in enumerate(lines) if line.endswith("Traceback (most recent call last):")
    ]
    reported: dict[str, str] = {}
    for start in starts:
        prefix = lines[start].removesuffix("Traceback (most recent call last):")
        end = next(n for n in range(start, len(lines)) if "ValueError: no data" in lines[n])
        assert all(line.startswith(prefix) for line in lines[start : end + 1]), done.err
        reported[prefix] = lines[end].removeprefix(prefix)
    of_rank = {
        rank: text
        for prefix, text in reported.items()
        for rank in read_ranks(prefix.strip("[] ").removeprefix("ranks ").removeprefix("rank "))
    }
    assert of_rank == {rank: f"ValueError: no data {rank // 2}" for rank in range(4)}, done.err


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
    assert "runtime/groups/group.py" not in done.err
    assert done.err.count("differs between ranks") <= 3  # one per rank that differs, and the report
    full = start_job("--nproc-per-node=2", script, environ={"DISTDBG_TRACEBACK": "full"}).wait()
    assert "runtime/groups/group.py" in full.err


@pytest.mark.slow
def test_an_op_timeout_says_where_the_rank_is_that_did_not_come(
    start_job: StartJob, write_script: WriteScript
) -> None:
    job = start_job("--nproc-per-node=4", write_script(SLEEPER), has_agent=True)
    done = job.wait()
    assert done.code == 1, done
    assert re.match(r"HUNG: rank 2 was asleep in load\(\) at \S+\.py:7$", done.report[0]), done.err
    assert re.search(rf"{EIGHT} of 0-3, asleep in load\(\) at ", done.report[1]), done.err
    assert done.report[-1].startswith("  next: distdbg analyze "), done.err
    assert any(line.startswith("  hint: see why it sleeps there") for line in done.report), done.err
    victims = [line for line in done.err.splitlines() if line.startswith("[rank")]
    assert 1 <= len(victims) <= 3, done.err  # lines that come together are one
    assert all("OpTimeout at " in line and re.search(EIGHT, line) for line in victims), done.err


#: A program, and how the launcher's report and the verdict of `distdbg analyze` start, for one cause.
LEAVERS = {
    "a loop that one rank does once more": (
        "for _ in range(6 if rank == 1 else 5):\n    dist.all_reduce(x)\n",
        "rank 1 made one more call than ranks 0,2-3, which left while it waited for them in all_reduce #6",
        1,
    ),
    "a call that one rank skips": (
        "for i in range(9):\n"
        "    with dist.span('step'):\n"
        "        if (rank, i) != (1, 3):\n"
        "            dist.all_reduce(x)\n",
        "rank 1 skipped one call after #3; it left while ranks 0,2-3 waited for it in all_reduce #9 on group "
        "'world'",
        1,
    ),
    "a recv from any rank that takes the message of another": (
        "if rank == 0:\n"
        "    dist.recv(x)\n"
        "    dist.recv(x, 1)\n"
        "elif rank == 1:\n"
        "    dist.send(x, 0)\n"
        "elif rank == 2:\n"
        "    time.sleep(600)  # its message comes too late\n"
        "    dist.send(x, 0)\n",
        "rank 0's recv from any rank at ",
        0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", LEAVERS)
def test_the_report_says_what_analyze_says_of_ranks_that_left(
    case: str, start_job: StartJob, write_script: WriteScript, tmp_path: Path
) -> None:
    program, start, blamed = LEAVERS[case]
    head = "import time, numpy as np, distdbg as dist\ndist.init_process_group()\n"
    head += "rank, x = dist.get_rank(), np.ones(4)\n"
    script = write_script(f"{head}{program}dist.destroy_process_group()\n")
    run = tmp_path / "run"
    done = start_job("--nproc-per-node=4", "--run-dir", str(run), script).wait()
    assert done.code == 1, done
    assert done.report[0].startswith(f"MISMATCH: {start}"), done.err
    assert "ended with exit code 0" not in "\n".join(done.report)
    verdict = diagnose(load_run(run))
    assert f"MISMATCH: {verdict.what}" == done.report[0]
    assert verdict.root is not None
    assert verdict.root.ranks == (blamed,)
    assert [finding for finding in verdict.findings if finding.severity is Severity.ERROR] == [
        verdict.root
    ]
