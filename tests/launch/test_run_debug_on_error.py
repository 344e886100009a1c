"""A rank that somebody debugs is not ended because another one failed, whatever it has stopped for."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.control import sockets
from distdbg.debugger.client import DebugClient
from distdbg.record.ends import read_ends
from tests.support.jobs import RunningJob

pytestmark = pytest.mark.slow

PATIENCE_S = 120.0
IS_HELD = "no rank is terminated while one is in a debugger"
#: Rank 1 fails and is held; then rank 0 leaves, with a code that is a failure.
SCRIPT = """
import os, sys, time
from pathlib import Path
import distdbg as dist
dist.init_process_group()
go = Path(sys.argv[1]) / "go"
if dist.get_rank() == 1:
    value = 41
    raise ValueError("no data")
while not go.exists():
    time.sleep(0.01)
os._exit(3)
"""


#: Rank 1 stops at its timeout; rank 0 comes too late, and fails of it.
LATE = """
import sys, time
from pathlib import Path
import numpy as np
import distdbg as dist
dist.init_process_group()
group = dist.new_group()
x = np.ones(2)
dist.all_reduce(x)
value = 41
while dist.get_rank() == 0 and not (Path(sys.argv[1]) / "go").exists():
    time.sleep(0.01)
dist.all_reduce(x, group=group, timeout=1.0)
"""


def held(job: RunningJob) -> DebugClient:
    """The debugger of rank 1 as soon as it can be reached, which is just before it stops."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        path = job.run_folder / "attempt_0" / "debug-rank1.sock"
        with suppress(FileNotFoundError):
            return DebugClient(sockets.connect(path, PATIENCE_S))
        time.sleep(0.02)  # nothing announces that a rank is held
    job.send(signal.SIGTERM)
    raise AssertionError(f"rank 1 has not stopped: {job.wait()}")


def err_until(job: RunningJob, words: str) -> str:
    """What the launcher has printed when it has said that."""
    stream, said = job.process.stderr, b""
    assert stream is not None

    def has_said() -> bool:
        nonlocal said
        if select.select([stream], [], [], 0)[0]:
            said += os.read(stream.fileno(), 1 << 16)
        return words.encode() in said

    job.until(has_said, f"{words!r} of the launcher", PATIENCE_S)
    return said.decode()


def value_of(expression: str, client: DebugClient) -> str:
    """The value as soon as the rank stands where there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while "value" not in (answer := client.evaluate(expression, PATIENCE_S)):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)  # nothing announces that it stands
    return answer["value"]


@pytest.mark.parametrize("has_agent", [False, True])
def test_no_rank_is_ended_for_anothers_failure_while_one_is_held(
    has_agent: bool,
    tmp_path: Path,
    start_job: Callable[..., RunningJob],
    write_script: Callable[[str], str],
) -> None:
    words = ["--nproc-per-node", "2", "--debug-on-error", write_script(SCRIPT), str(tmp_path)]
    job = start_job(*words, has_agent=has_agent)
    with held(job) as client:
        assert value_of("value + 1", client) == "42"
        (tmp_path / "go").touch()
        folder = job.run_folder / "attempt_0"
        job.until(lambda: any(end.rank == 0 for end in read_ends(folder)), "the end of rank 0")
        err = err_until(job, IS_HELD)
        assert value_of("value + 2", client) == "43"
        assert job.process.poll() is None
        client.go_on()
    done = job.wait()
    assert done.code in (1, 3)
    assert "ValueError: no data" in err + done.err


def test_a_rank_at_the_prompt_of_a_rule_outlives_the_failure_of_another(
    tmp_path: Path,
    start_job: Callable[..., RunningJob],
    write_script: Callable[[str], str],
) -> None:
    words = ["--nproc-per-node", "2", write_script(LATE), str(tmp_path)]
    job = start_job(*words, environ={"DISTDBG_BREAK": "rank=1,on=timeout"})
    with held(job) as client:
        (tmp_path / "go").touch()
        folder = job.run_folder / "attempt_0"
        job.until(lambda: any(end.rank == 0 for end in read_ends(folder)), "the end of rank 0")
        err = err_until(job, IS_HELD)
        assert value_of("value + 1", client) == "42"
        client.go_on()
    done = job.wait()
    assert done.code in (1, 3, 4)
    assert "OpTimeout" in err + done.err
