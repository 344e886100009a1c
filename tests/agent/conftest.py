"""Ranks with an agent: started as a program is, without any launcher; ended after the test."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from distdbg.agent.client import AgentClient
from distdbg.errors import DistNetworkError

ROOT = Path(__file__).resolve().parents[2]

BEGIN = """
import ctypes, os, re, signal, sys, threading, time
import numpy as np
import distdbg as dist
dist.init_process_group()
rank = dist.get_rank()
x = np.ones(4)
for _ in range(20):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
"""


class Job:
    """Some ranks and the agent that the first of them has started."""

    def __init__(self, folder: Path, program: str, world_size: int, **variables: str) -> None:
        self.folder = folder
        script = folder / "job.py"
        script.write_text(BEGIN + program)
        token = hashlib.sha256(os.fsencode(folder)).hexdigest()
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank in range(world_size):
            environ = dict(os.environ) | {
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "DISTDBG_STORE": f"local://{folder}/store",
                "DISTDBG_TOKEN": token,
                "DISTDBG_AGENT": "1",
                "PYTHONPATH": str(ROOT),
                "TMPDIR": str(folder),
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                **variables,
            }
            with open(folder / f"rank{rank}.out", "wb") as output:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, str(script)],
                        env=environ,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    @property
    def sockets(self) -> list[Path]:
        return list(self.folder.glob("distdbg-*/.agents/*.sock"))

    @property
    def run_folder(self) -> Path:
        return next(self.folder.glob("distdbg-*/latest")).resolve()

    def output(self, rank: int) -> str:
        return (self.folder / f"rank{rank}.out").read_text(errors="replace")

    def connect(self, timeout_s: float = 20.0) -> AgentClient:
        """The agent's client as soon as there is one."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for path in self.sockets:
                with suppress(DistNetworkError):
                    return AgentClient.at(path)
            time.sleep(0.02)  # nothing announces that an agent listens
        raise AssertionError(
            "no agent came\n" + "\n".join(map(self.output, range(len(self.processes))))
        )

    def await_row(
        self,
        client: AgentClient,
        rank: int,
        is_it: Callable[[dict[str, Any]], bool],
        timeout_s: float,
    ) -> dict[str, Any]:
        """The rank's row as soon as it fits; its last row when it does not in time."""
        deadline = time.monotonic() + timeout_s
        row: dict[str, Any] = {}
        while time.monotonic() < deadline:
            rows = {row["rank"]: row for row in client.ask("ranks")["ranks"]}
            row = rows.get(rank, row)
            if row and is_it(row):
                return row
            time.sleep(0.02)  # the agent looks ten times a second
        return row

    def end(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        deadline = time.monotonic() + 10
        while self.sockets and time.monotonic() < deadline:
            time.sleep(0.02)  # the agent leaves by itself
        assert not self.sockets, "the agent did not leave"


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def start(program: str, world_size: int = 2, **variables: str) -> Job:
        folder = tmp_path / f"job{len(jobs)}"
        folder.mkdir()
        jobs.append(Job(folder, program, world_size, **variables))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()
