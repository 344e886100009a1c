"""Jobs whose agents export metrics: started by `distdbg run` in a folder of their own, and read by HTTP."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support import ports
from tests.support.jobs import RunningJob, running

BEGIN = """
import os, pathlib, sys, time
import numpy as np
import distdbg as dist
dist.init_process_group()
rank = dist.get_rank()
x = np.ones(4, dtype=np.float32)
for _ in range(20):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
def wait_for(name):
    until = time.monotonic() + 100
    while not os.path.exists(os.path.join(os.environ["TMPDIR"], name)) and time.monotonic() < until:
        time.sleep(0.01)
"""


@pytest.fixture
def job_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="job-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
def start_job(job_folder: Path) -> Iterator[Callable[..., RunningJob]]:
    """Starts `distdbg run` of a program, with flags and variables; all in one temporary folder.

    Ranks that `wait_for('go')` go on at the end of the test.
    """
    jobs: list[RunningJob] = []
    with ExitStack() as stack:
        count = 0

        def start(program: str, *flags: str, ranks: int = 2, **environ: str) -> RunningJob:
            nonlocal count
            script = job_folder / f"script{count}.py"
            script.write_text(BEGIN + program)
            count += 1
            argv = ["--nproc-per-node", str(ranks), *flags, str(script)]
            jobs.append(stack.enter_context(running(argv, job_folder, environ, has_agent=True)))
            return jobs[-1]

        yield start
        (job_folder / "go").touch()
        for job in jobs:
            with suppress(subprocess.TimeoutExpired, ValueError):
                job.process.wait(30.0)


@pytest.fixture
def go(job_folder: Path) -> Callable[[str], None]:
    """Let ranks go on that `wait_for` a name."""
    return lambda name: (job_folder / name).touch()
