"""Jobs whose agents send to a collector of the test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.jobs import Done, RunningJob, running

HEAD = """
import os, signal, sys, time
import numpy as np
import distdbg as dist
dist.init_process_group()
rank = dist.get_rank()
x = np.ones(4, dtype=np.float32)
"""


def variables(port: int, **more: str) -> dict[str, str]:
    """What tells an agent to send all it has to the collector at this port, soon."""
    return {
        "DISTDBG_OTLP": "all",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "10",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_BLRP_SCHEDULE_DELAY": "100",
        "OTEL_METRIC_EXPORT_INTERVAL": "300",
        # What is sent at the end is waited for, however busy the host is.
        "DISTDBG_EXPORT_END_S": "25",
        **more,
    }


@pytest.fixture
def job_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="otlp-"))  # a short path: it is that of sockets
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def run_job(job_folder: Path) -> Callable[..., Done]:
    """Run a program on four ranks to its end; nothing of it is left."""

    def run(
        text: str,
        environ: dict[str, str],
        *flags: str,
        nproc: int = 4,
        on_start: Callable[[RunningJob], None] = lambda _: None,
    ) -> Done:
        program = job_folder / "train.py"
        program.write_text(HEAD + text)
        argv = [f"--nproc-per-node={nproc}", *flags, str(program)]
        with running(argv, job_folder, environ, has_agent=True) as job:
            on_start(job)
            done = job.wait()
            assert job.leftovers() == []
        return done

    return run
