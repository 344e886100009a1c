"""`start_job` starts `distdbg run`; after the test nothing of the job may be there any more."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from distdbg.testing.jobs import RunningJob, running


@pytest.fixture
def job_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="job-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start_job(job_folder: Path) -> Iterator[Callable[..., RunningJob]]:
    jobs: list[RunningJob] = []
    with ExitStack() as stack:

        def start(*argv: str, **how: Any) -> RunningJob:
            job = stack.enter_context(running(argv, job_folder, **how))
            jobs.append(job)
            return job

        yield start
        over = [
            job for job in jobs if job.process.poll() is not None
        ]  # of others, a test has failed
        left = [line for job in over for line in job.leftovers()]
    if left:
        pytest.fail("the job left behind\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture
def write_script(tmp_path: Path) -> Callable[[str], str]:
    return partial(_write, tmp_path)


def _write(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
