"""Ways to an agent: over TCP with a token, and through a stand-in for ssh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.client.ways import ask_all_hosts, find_way
from distdbg.errors import DistNetworkError, UsageError
from tests.agent.conftest import ROOT, Job

pytestmark = pytest.mark.slow

FAKE = Path(__file__).with_name("fake_ssh.py")
WAIT = "time.sleep(600)"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """As on a host where `ssh` is the stand-in."""
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "ssh"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    fake.chmod(0o755)
    return dict(os.environ) | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "FAKE_SSH_LOG": str(tmp_path / "ssh.log"),
        "DISTDBG_SSH_PYTHON": f"TMPDIR={tmp_path / 'job0'} {sys.executable}",
    }


@pytest.fixture(autouse=True)
def path_of_ssh(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", environ["PATH"])  # where subprocess looks


def test_a_run_on_another_host_is_reached_through_ssh(
    start_job: Callable[..., Job], environ: dict[str, str]
) -> None:
    job = start_job(WAIT)
    job.connect().close()
    with find_way("ssh://ada@here", environ) as way:
        assert way.name == f"ssh://ada@here/{job.run_folder.name}"
        with way.connect() as one, way.connect() as other:
            assert one.ask("about")["run"] == other.ask("about")["run"] == job.run_folder.name
        assert [one.error for one in ask_all_hosts(way, "ops")] == [None]
        lines = Path(environ["FAKE_SSH_LOG"]).read_text().splitlines()
        assert len(lines) == 2
        child = int(lines[1].split()[0])
        os.kill(child, signal.SIGKILL)  # the connection broke, and is made anew
        deadline = time.monotonic() + 120
        while True:
            with suppress(DistNetworkError), way.connect() as again:
                assert again.ask("about")["run"] == job.run_folder.name
                break
            assert time.monotonic() < deadline
        with pytest.raises(UsageError, match="ssh://here: no running job 'nope' there"):
            find_way("ssh://here/nope", environ)


def test_ssh_ends_with_who_has_started_it_however_that_ends(
    start_job: Callable[..., Job], environ: dict[str, str]
) -> None:
    job = start_job(WAIT)
    job.connect().close()
    program = (
        "import os, signal\n"
        "from distdbg.client.ways import find_way\n"
        "way = find_way('ssh://here')\n"
        "way.connect().close()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environ, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    child = int(Path(environ["FAKE_SSH_LOG"]).read_text().splitlines()[1].split()[0])
    deadline = time.monotonic() + 120
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # nobody says that it has ended


def test_what_is_in_the_way_is_said(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "job0").mkdir()
    with pytest.raises(UsageError, match="ssh://here: no running job of this user there"):
        find_way("ssh://here", environ)
    with pytest.raises(DistNetworkError, match="ssh://locked: ssh was refused"):
        find_way("ssh://locked", environ)
    with pytest.raises(DistNetworkError, match="ssh://n14: unknown host name"):
        find_way("ssh://n14", environ)
    with pytest.raises(UsageError, match="its Python has no distdbg"):
        find_way("ssh://here", environ | {"PYTHONPATH": "", "DISTDBG_SSH_PYTHON": "python3 -I"})
    with pytest.raises(UsageError, match="there is no such Python"):
        find_way("ssh://here", environ | {"DISTDBG_SSH_PYTHON": "python9"})


def test_commands_take_addresses(start_job: Callable[..., Job], environ: dict[str, str]) -> None:
    job = start_job(WAIT)
    job.connect().close()

    def distdbg(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "distdbg", *words],
            env=environ, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    seen = json.loads(distdbg("ps", "ssh://here", "--json").stdout)["runs"]
    assert [run["run"] for run in seen] == [job.run_folder.name]
    assert [row["rank"] for row in seen[0]["ranks"]] == [0, 1]
    assert "is paused" in distdbg("pause", "ssh://here").stderr
    assert "is resumed" in distdbg("resume", "ssh://here").stderr
    stacks = distdbg("stacks", "ssh://here", "--python")
    assert "job.py" in stacks.stdout, stacks
    ended = distdbg("stop", "ssh://here", "--yes")
    assert "has ended" in ended.stderr, ended
