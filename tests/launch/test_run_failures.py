"""Three ranks of which one fails: what the launcher reports, how soon, and what is left."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.record.ends import RankEnd
from tests.support.jobs import Done, RunningJob

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

PROGRAM = str(Path(__file__).with_name("programs") / "failing.py")
#: In which ranks would be killed that had not ended when they were told to.
SHUTDOWN_S = 120
#: From the first end to the launcher's own, with the report in between.
TOLD_S = SHUTDOWN_S / 4
StartJob = Callable[..., RunningJob]


def fail(start_job: StartJob, kind: str, *flags: str, **how: object) -> tuple[Done, list[RankEnd]]:
    flags = (f"--shutdown-timeout={SHUTDOWN_S}", *flags)
    job = start_job("--nproc-per-node=3", *flags, PROGRAM, kind, **how)
    done = job.wait()
    over_ns = time.time_ns()
    assert done.report, done
    assert done.report[-1].strip().startswith("next: distdbg analyze "), done.err
    assert f"  run folder: {job.run_folder}" in done.report
    ends = job.ends()
    assert [end.rank for end in ends] == [0, 1, 2]
    assert all(end.is_failure for end in ends)
    assert over_ns - min(end.wall_ns for end in ends) < TOLD_S * 1e9
    return done, ends


@pytest.mark.parametrize(
    ("kind", "code", "word", "how"),
    [
        ("raise", 1, "FAILED", "raised ValueError: no data"),
        ("exit", 3, "FAILED", "exited with code 3"),
        ("kill", 137, "RANK DIED", "was killed by SIGKILL"),
        ("segv", 139, "RANK DIED", "was killed by SIGSEGV"),
        ("abort", 134, "RANK DIED", "was killed by SIGABRT"),
        ("memory", 1, "OUT OF MEMORY", "raised MemoryError"),
    ],
)
def test_the_report_begins_with_the_rank_that_failed_first(
    start_job: StartJob, kind: str, code: int, word: str, how: str
) -> None:
    done, ends = fail(start_job, kind)
    assert done.code == code, done.err
    first, second = done.report[:2]
    assert first.startswith(f"{word}: rank 2 {how}"), done.err
    assert re.search(r"\b(failed|terminated)\b because of it", "\n".join(done.report)), done.err
    first = first if "host" in first else f"{first} ({second.strip()})"
    assert ends[2].shell_code == code
    assert not ends[2].was_asked
    assert f"pid {ends[2].pid})" in first
    if kind in ("segv", "abort"):
        crashed = next(line for line in done.report if "crashed at " in line)
        assert re.search(r"failing\.py:\d+ \(fail\), called from ", crashed), done.err
    if kind == "raise":  # the line is in the report, the traceback above it and in the error file
        assert sum('raise ValueError("no data")' in line for line in done.report) == 1, done.err
        file = next(line for line in done.report if "error file: " in line).split(": ", 1)[1]
        assert Path(file).name == "error.json"
        assert "no data" in Path(file).read_text()


def test_a_rank_that_the_kernel_killed_for_memory_is_told_apart_from_a_kill(
    start_job: StartJob, make_cgroup: Callable[[int], Path]
) -> None:
    members = make_cgroup(600 << 20) / "cgroup.procs"
    done, ends = fail(start_job, "hog", before_exec=lambda: members.write_text(str(os.getpid())))
    assert done.code == 137
    assert done.report[0].startswith("OUT OF MEMORY: rank 2 was killed for memory"), done.err
    assert ends[2].cause == "oom"
    assert ends[2].signal == signal.SIGKILL


def test_named_pipes_in_place_of_files_hold_nobody_up(
    start_job: StartJob, write_script: Callable[[str], str]
) -> None:
    script = write_script(
        "import os\n"
        "os.mkfifo(os.environ['TORCHELASTIC_ERROR_FILE'])\n"
        "here, host = os.environ['DISTDBG_RUN_DIR'], os.environ['DISTDBG_HOST']\n"
        "os.mkfifo(f'{here}/ends-{host}.jsonl')\n"
        "os._exit(4)\n"
    )
    assert start_job(script).wait().code == 4
