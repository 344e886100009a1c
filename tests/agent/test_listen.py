"""`distdbg run --agent-listen`: the agent answers over TCP, or says who has the port, and the job runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.client.ways import find_way
from distdbg.errors import DistNetworkError

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "of this test"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(port: int, program: str) -> subprocess.Popen[str]:
        (tmp_path / "job.py").write_text(program)
        words = ["-m", "distdbg", "run", f"--agent-listen=127.0.0.1:{port}"]
        own = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "DISTDBG_AGENT": "1"}
        started.append(
            subprocess.Popen(
                [sys.executable, *words, str(tmp_path / "job.py")],
                env=os.environ | own | {"DISTDBG_TOKEN": TOKEN},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def connect(port: int) -> AgentClient:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(DistNetworkError):
            return AgentClient.over_tcp("127.0.0.1", port, TOKEN.encode())
        time.sleep(0.02)  # nothing announces that an agent listens
    raise AssertionError("no agent came")


@pytest.mark.slow
def test_who_has_the_token_arms_and_stops_a_job_over_tcp(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    job = start(port, "import time\ntime.sleep(600)\n")
    with connect(port) as client:
        armed = {"id": 1, "rule": "kind=all_reduce"}
        deadline = time.monotonic() + 120
        while not client.ask("ranks")["ranks"]:  # it listens before its ranks are started
            assert time.monotonic() < deadline
            time.sleep(0.02)  # nothing announces them to who only asks
        assert client.ask("break", rule="kind=all_reduce") == armed
        assert client.ask("about")["control"]["rules"] == {"rules": [armed]}
        assert client.ask("clear") == {"cleared": [1]}
        assert client.ask("stop") == {"launcher": job.pid}
    assert job.wait(120) == 128 + 15


def test_an_address_with_a_port_leads_there_with_the_token(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start(port, "import time\ntime.sleep(600)\n")
    connect(port).close()
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    for environ in ({"DISTDBG_TOKEN": TOKEN}, {"DISTDBG_TOKEN_FILE": str(file)}):
        with find_way(f"127.0.0.1:{port}", environ) as way, way.connect_root() as client:
            assert client.ask("about")["run"] == client.hello["run"]
    with (
        find_way(f"127.0.0.1:{port}", {"DISTDBG_TOKEN": "another"}) as way,
        pytest.raises(DistNetworkError, match="does not have the token"),
    ):
        way.connect()


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_with_its_holder_and_the_job_runs(
    start: Start, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        job = start(
            port,
            f"import os, time\nwhile not os.path.exists({os.fspath(go)!r}):\n"
            "    time.sleep(0.01)  # a file announces nothing\nprint('ran')\n",
        )
        said = f"the agent cannot listen on 127.0.0.1:{port}: the port is held by "
        assert job.stderr is not None
        err = ""
        while said not in err and (line := job.stderr.readline()):
            err += line
        go.touch()
        out, rest = job.communicate(timeout=120)
    assert (job.returncode, out) == (0, "ran\n")
    err += rest
    assert said in err
    assert f"(pid {os.getpid()}, user " in err
