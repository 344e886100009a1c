"""A run on another host by the real ssh: a server of our own on a port of the loopback."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.client.ways import find_way
from distdbg.errors import DistNetworkError
from tests.agent.conftest import ROOT, Job
from tests.support.ports import free_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
SSH = shutil.which("ssh")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ssh,
    pytest.mark.skipif(SSHD is None or SSH is None, reason="sshd is not installed"),
]

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowStreamLocalForwarding {forwards}
"""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], dict[str, str]]]:
    """Start a server; the environment in which ssh knows it. Its keys are in the folder of the test."""
    servers: list[subprocess.Popen[bytes]] = []
    if os.getuid() == 0:
        # Debian's service makes this folder when it starts; a server of root ends without it. It
        # stays: another server that runs now would miss it.
        Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "key"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(keygen, check=True, stdin=subprocess.DEVNULL)
    port = free_port()

    def start(forwards: str) -> dict[str, str]:
        assert SSHD is not None
        (tmp_path / "sshd").write_text(CONFIG.format(port=port, folder=tmp_path, forwards=forwards))
        log = tmp_path / "sshd.log"
        with open(log, "wb") as says:
            servers.append(
                subprocess.Popen(
                    [SSHD, "-D", "-e", "-f", str(tmp_path / "sshd")],
                    stdin=subprocess.DEVNULL,
                    stderr=says,
                )
            )
        deadline = time.monotonic() + 120
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            assert servers[-1].poll() is None, f"sshd has ended: {log.read_text()}"
            assert time.monotonic() < deadline, f"sshd does not listen: {log.read_text()}"
            time.sleep(0.02)  # nothing announces that it listens
        key = (tmp_path / "host.pub").read_text()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {key}")
        (tmp_path / "bin").mkdir()
        ssh = tmp_path / "bin" / "ssh"
        own = f"-F none -i {tmp_path}/key -o IdentitiesOnly=yes -o UserKnownHostsFile={tmp_path}/known"
        ssh.write_text(f'#!/bin/sh\nexec {SSH} {own} "$@"\n')
        ssh.chmod(0o755)
        return dict(os.environ) | {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "ADDRESS": f"ssh://{getpass.getuser()}@127.0.0.1:{port}",
            "DISTDBG_SSH_PYTHON": f"TMPDIR={tmp_path}/job0 PYTHONPATH={ROOT} {sys.executable}",
        }

    yield start
    for server in servers:
        server.terminate()
        server.wait()


def test_a_run_is_reached_through_sshd(
    start_job: Callable[..., Job],
    serve: Callable[[str], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = start_job("time.sleep(600)")
    job.connect().close()
    environ = serve("yes")
    monkeypatch.setenv("PATH", environ["PATH"])
    with find_way(environ["ADDRESS"], environ) as way:
        with way.connect() as one, way.connect() as other:
            assert one.ask("about")["run"] == other.ask("about")["run"] == job.run_folder.name
        with pytest.raises(DistNetworkError, match="ssh was refused"):
            find_way("ssh://nobody@127.0.0.1:" + environ["ADDRESS"].rpartition(":")[2], environ)


def test_a_server_that_forwards_nothing_is_called_so(
    start_job: Callable[..., Job],
    serve: Callable[[str], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = start_job("time.sleep(600)")
    job.connect().close()
    environ = serve("no")
    monkeypatch.setenv("PATH", environ["PATH"])
    with find_way(environ["ADDRESS"], environ) as way:
        with pytest.raises(DistNetworkError, match="open failed") as raised:
            way.connect()
        assert raised.value.hint is not None
        assert "AllowStreamLocalForwarding" in raised.value.hint
