"""Programs that hang, under `distdbg run` and with timeouts of a minute: the agent ends each at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.session import Session
from distdbg.errors import format_ranks
from distdbg.record.folders import attempt_folder
from distdbg.record.format import Exit
from distdbg.record.observations import read_sightings
from tests.support.jobs import Done, running

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

_HERE = Path(__file__).parent
_WRONG = _HERE.parent / "programs" / "wrong"
_LIMIT = re.compile(r"timedelta\(seconds=\d+\)")
_SIDE_BY_SIDE = 4


@dataclass(frozen=True)
class Hang:
    """A program, and what must be said of it."""

    program: str
    """Of the catalogue, or a kind of `hanging.py`."""
    size: int
    ranks: tuple[int, ...]
    says: str


#: Some are of two ranks: of three there would be two cycles, and the one that closes first ends the job. Of
#: groups in different order there is one: `tests/programs` has the others, whose records look alike.
HANGS = [
    Hang("a_cycle_of_three_groups", 3, (0, 1, 2), "all_reduce"),
    Hang(
        "both_receive_first", 2, (0, 1), "all wait in recv at both_receive_first.py:23: 0 <- 1 <- 0"
    ),
    Hang("both_send_first", 2, (0, 1), "all wait in send at both_send_first.py:23: 0 -> 1 -> 0"),
    Hang("tag", 2, (0, 1), "tag 5"),
    Hang("nobody_sends", 3, (0, 1, 2), "recv from any rank"),
    Hang("barrier_against_monitored_barrier", 2, (0, 1), "monitored_barrier"),
    Hang("ring", 4, (0, 1, 2, 3), ": 0 <- 1 <- 2 <- 3 <- 0"),
    Hang("knot", 4, (0, 1, 2), "recv from any rank"),
    Hang(
        "array_on_the_host_of_one_rank",
        2,
        (0, 1),
        "rank 1 called all_reduce with an array on the host, rank 0 with one on a GPU",
    ),
]


@dataclass(frozen=True)
class Ended:
    """What came of one."""

    done: Done
    session: Session
    verdict: dict[str, Any]
    seen: frozenset[int]
    """The ranks that the agent has a reason for."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Hang, Ended]]:
    folder = tmp_path_factory.mktemp("h")
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        places = [folder / str(at) for at in range(len(HANGS))]
        yield dict(zip(HANGS, pool.map(run, HANGS, places), strict=True))


def run(hang: Hang, folder: Path) -> Ended:
    folder.mkdir()
    path = _WRONG / f"{hang.program}.py"
    argv = [str(_HERE / "programs" / "hanging.py"), hang.program]
    own = _HERE / "programs" / f"{hang.program}.py"
    if own.exists():
        argv = [str(own)]
    elif path.exists():
        script = folder / path.name
        script.write_text(_LIMIT.sub("timedelta(seconds=60)", path.read_text()))
        argv = [str(script)]
    with running([f"--nproc-per-node={hang.size}", *argv], folder, has_agent=True) as job:
        done = job.wait()
        attempt = attempt_folder(job.run_folder, 0)
        verdict = json.loads((attempt / "verdict.json").read_text())
        seen = frozenset(sighting.rank for sighting in read_sightings(attempt))
        return Ended(done, load_run(job.run_folder), verdict, seen)


@pytest.mark.parametrize("hang", HANGS, ids=lambda hang: f"{hang.program}-{hang.size}")
def test_a_hang_ends_with_its_verdict_and_long_before_its_timeout(
    ended: dict[Hang, Ended], hang: Hang
) -> None:
    done, session, verdict = ended[hang].done, ended[hang].session, ended[hang].verdict
    root = verdict["findings"][verdict["verdict"]["root"]]
    assert (root["kind"], tuple(root["ranks"])) == ("deadlock", hang.ranks), done
    assert root["what"].startswith(f"ranks {format_ranks(hang.ranks)} are deadlocked"), done
    assert hang.says in root["what"]
    assert done.code == 1
    [line] = re.findall(r"^distdbg: (.*)", done.err, re.MULTILINE)
    assert line == f"DEADLOCK on ranks {format_ranks(hang.ranks)}: the job is aborted", done
    assert done.report[0] == f"DEADLOCK: {root['what']}", done
    assert done.err.count(root["what"]) == 1
    assert ended[hang].seen == set(hang.ranks)
    blocked_ns, raised_ns = [], []
    for rank, log in session.ranks.items():
        if log.exit is Exit.LEFT:
            continue
        assert log.exit_what.startswith("JobAborted: the job was aborted by the agent"), done
        assert root["what"] in log.exit_what
        blocked_ns.append(session.time_ns(rank, log.ops.issued_ns[-1]))
        raised_ns.append(session.time_ns(rank, log.ops.ended_ns[-1]))
    assert max(raised_ns) - max(blocked_ns) < 30_000_000_000  # how soon: benchmarks/verdict.py


LOOKS_AGAIN = """
import sys
from datetime import timedelta

import numpy as np

import distdbg as dist

dist.init_process_group()
buffer = np.zeros(1)
if dist.get_rank() == 0:
    work = dist.irecv(buffer, 1, tag=1)
    try:
        work.wait(timedelta(seconds=3))  # longer than a deadlock takes to be proven
    except dist.OpTimeout:
        dist.send(np.ones(1), 1, tag=2)
    work.wait()
else:
    dist.recv(buffer, 0, tag=2)
    dist.send(buffer * 7, 0, tag=1)
sys.stdout.write(f"{dist.get_rank()} {buffer[0]}\\n")  # in one piece, beside the other rank's
"""


def test_a_wait_with_a_limit_of_its_own_is_no_deadlock(tmp_path: Path) -> None:
    script = tmp_path / "looks_again.py"
    script.write_text(LOOKS_AGAIN)
    with running(["--nproc-per-node=2", str(script)], tmp_path, has_agent=True) as job:
        done = job.wait()
    assert done.code == 0, done.err
    assert "0 7.0" in done.out
    assert "DEADLOCK" not in done.err


SLEEPS = """
import sys
import time

import distdbg as dist

dist.init_process_group()
if dist.get_rank() == 0:
    time.sleep(float(sys.argv[1]))  # what `ps` is to show
dist.barrier()
"""


def test_without_a_path_the_job_that_runs_is_meant_wherever_its_records_are(tmp_path: Path) -> None:
    def distdbg(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "distdbg", *words],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS)
    with running(["--nproc-per-node=1", str(script), "0"], tmp_path, has_agent=True) as job:
        assert job.wait().code == 0
    words = ["--nproc-per-node=2", f"--run-dir={tmp_path / 'mine'}", str(script), "600"]
    with running(words, tmp_path, has_agent=True) as job:
        job.until(lambda: "asleep" in distdbg("ps").stdout, "a rank sleeps")
        assert json.loads(distdbg("analyze", "--json").stdout)["source"].endswith("mine")
        done = distdbg("stacks", "--rank", "9")
        assert (done.returncode, done.stdout) == (2, "")
        assert "UsageError: the job has no such rank 9" in done.stderr
