"""Ranks with an agent: no launcher has started them; ended after the test."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.errors import DistNetworkError
from distdbg.record.observations import read_sightings
from distdbg.record.rank_state import RankState
from distdbg.testing.fork_server import ForkedRank, ForkServer, fork_servers

ROOT = Path(__file__).resolve().parents[2]
SCRIPT_RANK = Path(__file__).with_name("script_rank.py")

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


class Process(Protocol):
    """What a test asks of a rank's process; Popen has it as well."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Forks:
    """The ranks of one job, forked from a server that has imported the library."""

    def __init__(self, server: ForkServer, ranks: list[ForkedRank]) -> None:
        self._server = server
        self._codes: dict[int, int] = {}
        self._is_over = False
        self.processes: list[Process] = [
            Fork(self, index, pid) for index, pid in enumerate(server.start(ranks))
        ]

    def await_code(self, index: int, timeout_s: float) -> int | None:
        """The exit code of a rank, negative for a signal; None: it still runs."""
        deadline = time.monotonic() + timeout_s
        while index not in self._codes:
            ended = self._server.wait_for_one(max(0.0, deadline - time.monotonic()))
            if ended is None:
                return None
            self._codes[ended[0]] = ended[1]
        return self._codes[index]

    def end(self) -> None:
        """Kill those that are left."""
        if not self._is_over:
            self._is_over = True
            self._codes |= dict(enumerate(self._server.end()))


class Fork:
    """Implements Process."""

    def __init__(self, forks: Forks, index: int, pid: int) -> None:
        self._forks, self._index, self.pid = forks, index, pid

    def poll(self) -> int | None:
        return self._forks.await_code(self._index, 0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._forks.await_code(self._index, 60.0 if timeout is None else timeout)
        assert code is not None, f"process {self.pid} still runs after {timeout} s"
        return code


class Job:
    """Some ranks and the agent that the first of them has started.

    Without a `server` each rank is an interpreter of its own, for tests of what a process is.
    """

    def __init__(
        self,
        folder: Path,
        program: str,
        world_size: int,
        server: ForkServer | None,
        **variables: str,
    ) -> None:
        self.folder = folder
        self._script = folder / "job.py"
        self._script.write_text(BEGIN + program)
        environs = [self._environ(rank, world_size, variables) for rank in range(world_size)]
        self._forks: Forks | None = None
        if server is None:
            self.processes = [self._spawn(rank, one) for rank, one in enumerate(environs)]
        else:
            ranks = [self._fork(rank, one) for rank, one in enumerate(environs)]
            self._forks = Forks(server, ranks)
            self.processes = self._forks.processes

    def _environ(self, rank: int, world_size: int, variables: dict[str, str]) -> dict[str, str]:
        return dict(os.environ) | {
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "DISTDBG_STORE": f"local://{self.folder}/store",
            "DISTDBG_TOKEN": hashlib.sha256(os.fsencode(self.folder)).hexdigest(),
            "DISTDBG_AGENT": "1",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.folder),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **variables,
        }

    def _fork(self, rank: int, environ: dict[str, str]) -> ForkedRank:
        (self.folder / f"rank{rank}.out").touch()  # to be read before the rank has begun
        words = json.dumps({"path": str(self._script)})
        result = str(self.folder / f"rank{rank}.result")
        return ForkedRank(
            env=environ,
            output=self.folder / f"rank{rank}.out",
            arguments=[str(SCRIPT_RANK), "run_script", words, result],
        )

    def _spawn(self, rank: int, environ: dict[str, str]) -> Process:
        with open(self.folder / f"rank{rank}.out", "wb") as output:
            return subprocess.Popen(
                [sys.executable, str(self._script)],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def sockets(self) -> list[Path]:
        return list(self.folder.glob("distdbg-*/.agents/*.sock"))

    @property
    def run_folder(self) -> Path:
        return next(self.folder.glob("distdbg-*/latest")).resolve()

    def output(self, rank: int) -> str:
        return (self.folder / f"rank{rank}.out").read_text(errors="replace")

    def connect(self, timeout_s: float = 120.0) -> AgentClient:
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
        timeout_s: float = 120.0,
    ) -> dict[str, Any]:
        """The rank's row as soon as it fits."""
        deadline = time.monotonic() + timeout_s
        row: dict[str, Any] = {}
        while time.monotonic() < deadline:
            rows = {row["rank"]: row for row in client.ask("ranks")["ranks"]}
            row = rows.get(rank, row)
            if row and is_it(row):
                return row
            time.sleep(0.02)  # the agent looks ten times a second
        raise AssertionError(f"the row of rank {rank} does not come: {row}\n{self.output(rank)}")

    def await_sighting(self, rank: int, state: RankState, timeout_s: float = 120.0) -> None:
        """Until the agent has written down that it saw the rank so."""
        deadline = time.monotonic() + timeout_s
        while not any((s.rank, s.state) == (rank, state) for s in read_sightings(self.run_folder)):
            assert time.monotonic() < deadline, f"nobody saw rank {rank} {state}"
            time.sleep(0.05)  # a file is looked at again

    def kill(self) -> None:
        """End the ranks that are left; their agent leaves by itself then."""
        if self._forks is not None:
            self._forks.end()
        else:
            for process in self.processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def await_no_agent(self) -> None:
        """Wait until the agent has left."""
        deadline = time.monotonic() + 120
        while self.sockets:
            assert time.monotonic() < deadline, "the agent did not leave"
            time.sleep(0.02)  # nothing announces it

    def end(self) -> None:
        """End ranks and agent: at once, for the agent would stay another half second for ranks to come."""
        self.kill()
        for path in self.sockets:
            # It may leave by itself meanwhile, as its ranks have.
            with (
                suppress(DistNetworkError, ProcessLookupError),
                AgentClient.at(path) as client,
            ):
                os.kill(client.hello["pid"], signal.SIGTERM)
        self.await_no_agent()


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []
    with ExitStack() as stack:

        def start(
            program: str, world_size: int = 2, *, is_forked: bool = True, **variables: str
        ) -> Job:
            folder = tmp_path / f"job{len(jobs)}"
            folder.mkdir()
            server: ForkServer | None = None
            if is_forked and not jobs:
                server = stack.enter_context(fork_servers.take())
            elif is_forked:  # a server has one job at a time; this one goes with the test
                server = stack.enter_context(closing(ForkServer()))
            jobs.append(Job(folder, program, world_size, server, **variables))
            return jobs[-1]

        yield start
        for job in jobs:
            job.end()
