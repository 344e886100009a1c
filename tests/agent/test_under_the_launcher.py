"""The agent that `distdbg run` starts: told of starts and ends, and of the launcher's own end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.errors import DistNetworkError

ROOT = Path(__file__).resolve().parents[2]
JOB = """
import os, time
import numpy as np
import distdbg as dist
dist.init_process_group()
if dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(0.5)
    os._exit(3)
if dist.get_rank() == 1:
    time.sleep(600)
dist.all_reduce(np.ones(1))
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "job.py").write_text(JOB)
    words = ["run", "--nproc-per-node=2", "--max-restarts=1", str(tmp_path / "job.py")]
    with open(tmp_path / "out", "wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; from distdbg.cli.main import main; sys.exit(main())",
                *words,
            ],
            env=os.environ
            | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "DISTDBG_AGENT": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    yield process
    process.kill()
    process.wait()


def ask(folder: Path, do: str) -> dict[str, Any]:
    for path in folder.glob("distdbg-*/.agents/*.sock"):
        with suppress(DistNetworkError), AgentClient.at(path) as client:
            found: dict[str, Any] = client.ask(do)
            return found
    return {}


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(folder, "ranks").get("ranks", [])
    return found


@pytest.mark.slow
def test_it_follows_a_restart_and_leaves_with_the_launcher(
    launcher: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        seen = rows(tmp_path)
        if [row["attempt"] for row in seen] == [1, 1] and seen[0]["state"] == "waiting":
            break
        time.sleep(0.02)  # the agent looks ten times a second
    assert [row["attempt"] for row in seen] == [1, 1], (tmp_path / "out").read_text()
    assert seen[0]["state"] == "waiting"
    about = ask(tmp_path, "about")
    assert about["launcher_pid"] == launcher.pid
    assert about["folder"].endswith("attempt_1")
    launcher.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120
    while Path(f"/proc/{about['pid']}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # its launcher's end is what it sees
    assert not Path(f"/proc/{about['pid']}").exists()


def test_its_death_costs_a_line_and_not_the_job(
    launcher: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    deadline = time.monotonic() + 120
    while not (about := ask(tmp_path, "about")) and time.monotonic() < deadline:
        time.sleep(0.02)  # it is starting
    os.kill(about["pid"], signal.SIGKILL)
    words = "the agent of this host was killed by SIGKILL; restarting it"
    while words not in (tmp_path / "out").read_text() and time.monotonic() < deadline:
        time.sleep(0.02)  # the launcher's output is a file
    assert words in (tmp_path / "out").read_text()
    assert launcher.poll() is None
