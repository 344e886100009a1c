"""Two launchers on 127.0.0.x, each with its agent: one job for whoever asks either."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.control.page import read_page
from distdbg.errors import DistNetworkError, RecordError
from distdbg.record.folders import record_name
from distdbg.record.reader import RecordFile

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import time
import numpy as np
import distdbg as dist
dist.init_process_group()
while True:
    dist.all_reduce(np.ones(4))
    time.sleep(0.02)  # the rest of a step
"""
HOSTS = ("127.0.0.2", "127.0.0.3")


@pytest.fixture
def launchers(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM)
    environ = dict(os.environ) | {
        "DISTDBG_AGENT": "1",
        "DISTDBG_TOKEN": "a secret of the tests",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    started = []
    for node, host in enumerate(HOSTS):
        command = [sys.executable, "-m", "distdbg.launch", "--nnodes=2", f"--node-rank={node}"]
        command += ["--nproc-per-node=1", f"--local-addr={host}", "--rdzv-backend=c10d"]
        command += [f"--rdzv-endpoint=127.0.0.2:{30000 + os.getpid() % 20000}", "--rdzv-id=two"]
        with open(tmp_path / f"launcher{node}.out", "wb") as output:
            started.append(
                subprocess.Popen(
                    [*command, str(script)], env=environ, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip
    yield started
    for process in started:
        process.send_signal(signal.SIGTERM)
    for process in started:
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    deadline = time.monotonic() + 120
    while list(tmp_path.glob("distdbg-*/.agents/*.sock")) and time.monotonic() < deadline:
        time.sleep(0.02)  # the agents leave by themselves


def ranks_reported(path: Path) -> dict[int, str]:
    with suppress(DistNetworkError), AgentClient.at(path) as client:
        return {row["rank"]: row["host"] for row in client.ask("ranks")["ranks"]}
    return {}


@pytest.mark.slow
def test_the_root_knows_both_hosts_a_pause_stops_both_and_the_clocks_are_written(
    launchers: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    deadline = time.monotonic() + 120

    def output() -> str:
        return "\n".join(path.read_text() for path in sorted(tmp_path.glob("launcher*.out")))

    sockets: dict[str, Path] = {}
    while True:
        for path in tmp_path.glob("distdbg-*/.agents/*.sock"):
            sockets[re.sub(r".*@|\.sock$", "", path.name)] = path
        reported = [ranks_reported(path) for path in sockets.values()]
        whole = [ranks for ranks in reported if len(ranks) == 2]
        if whole:
            break
        assert time.monotonic() < deadline, output()
        time.sleep(0.05)  # nothing announces that two agents have met
    assert sorted(whole[0].values()) == sorted(HOSTS)
    (folder,) = tmp_path.glob("distdbg-*/*-*/attempt_0")
    with AgentClient.at(sockets[HOSTS[1]]) as client:
        client.ask("pause")
    while True:
        pages = [read_page(folder, host) for host in HOSTS]
        errors = []
        for rank in range(2):
            try:
                with RecordFile(folder / record_name(rank)) as record:
                    errors.append(record.state().clock_error_ns)
            except RecordError:
                errors.append(0)  # agents may meet before a rank has come so far
        if all(page is not None and page.is_paused for page in pages) and all(errors):
            break
        assert time.monotonic() < deadline, (pages, errors, output())
        time.sleep(0.05)  # nor that they have done it
    assert 1 in errors  # the root's own clock is the clock
