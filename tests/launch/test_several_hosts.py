"""Several launchers at one endpoint: whose failure counts, who has no place, who waits for the others."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import distdbg
from distdbg.launch.rendezvous.board import RendezvousBoard
from distdbg.launch.rendezvous.state import RendezvousState
from distdbg.runtime.store import TCPStore
from tests.support.leftovers import JobMark, find_leftovers, find_marked, new_mark, take_traces
from tests.support.ports import free_port

PROGRAM = Path(__file__).parent / "programs" / "guided_by_files.py"
QUICK = "last_call_timeout=1,keep_alive_interval=0.3,keep_alive_max_attempt=10"
PATIENCE_S = 60.0

pytestmark = pytest.mark.slow  # each needs several interpreters to start, some of them twice


class Host:
    """A launcher on an address of its own."""

    def __init__(
        self, number: int, port: int, folder: Path, mark: JobMark, flags: list[str]
    ) -> None:
        self.number = number
        self.port = port
        self._log = folder / f"host-{number}.log"
        package = str(Path(distdbg.__file__).parents[1])
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "distdbg.launch", "--use-env"),
                    *("--local-addr", f"127.0.0.{number}", "--rdzv-conf", QUICK),
                    *("--run-dir", str(folder / "runs"), *flags, str(PROGRAM), str(folder)),
                ],
                env={**os.environ, **mark.environment, "PYTHONPATH": package},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    @property
    def ranks(self) -> list[str]:
        """What its ranks said of themselves, start by start."""
        return re.findall(r"<rank (.*)>", self.output)

    def await_rank(self, *said: str) -> None:
        self.await_that(lambda: any(rank in said for rank in self.ranks), f"no rank says {said}")

    def end(self) -> int:
        """Its exit code."""
        return self.process.wait(PATIENCE_S)

    def await_that(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"host {self.number}: {what}\n{self.output}"
            time.sleep(0.02)  # a launcher announces nothing to its parent


def agreement(host: Host) -> RendezvousState:
    """What the launchers have agreed on: one that waits says little."""
    store = TCPStore("127.0.0.1", host.port)
    try:
        return RendezvousBoard(store, "none", "here").read()
    finally:
        store.close()


def is_served(host: Host) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", host.port)) == 0


Start = Callable[..., list[Host]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    port = free_port()
    hosts: list[Host] = []
    before = take_traces(new_mark())

    def begin(count: int, nnodes: str, *flags: str) -> list[Host]:
        begun = []
        for _ in range(count):
            meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
            given = ["--nnodes", nnodes, *meeting, *flags]
            host = Host(len(hosts) + 1, port, tmp_path, before.mark, given)
            hosts.append(host)
            begun.append(host)
        return begun

    yield begin
    (tmp_path / "go").touch()
    for host in hosts:
        with suppress(subprocess.TimeoutExpired):
            host.process.wait(10.0)
        host.process.kill()
        host.process.wait()
    leftovers = find_leftovers(before)
    for pid in find_marked(before.mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not leftovers


def end_well(folder: Path, *hosts: Host) -> None:
    (folder / "go").touch()
    assert [host.end() for host in hosts] == [0] * len(hosts), [host.output for host in hosts]


def test_a_failure_on_any_host_uses_up_one_restart_of_all(start: Start, tmp_path: Path) -> None:
    hosts = start(2, "2", "--max-restarts", "1")
    for host in hosts:
        host.await_rank("0 in 2, restart 0", "1 in 2, restart 0")
    (tmp_path / "fail-1-0").touch()
    for host in hosts:
        host.await_rank("0 in 2, restart 1", "1 in 2, restart 1")
    (tmp_path / "fail-1-1").touch()
    codes = {host.ranks[0][0]: host.end() for host in hosts}
    assert codes == {"0": 3, "1": 3}
    for host in hosts:
        assert host.output.count("restarting all ranks (attempt 2 of 2)") == 1
        assert host.output.count("exited with code 3") >= 2  # why it started anew, and why it ended


def test_a_launcher_that_cannot_join_leaves_the_others_alone(start: Start, tmp_path: Path) -> None:
    (first,) = start(1, "1:2")
    first.await_rank("0 in 1, restart 0")
    (stranger,) = start(1, "1:3")
    assert stranger.end() == 2
    assert "has --nnodes 1:3, the others at 127.0.0.1:" in stranger.output
    end_well(tmp_path, first)
    assert first.ranks == ["0 in 1, restart 0"]


def test_a_spare_launcher_ends_well_with_the_job(start: Start, tmp_path: Path) -> None:
    hosts = start(2, "2")
    for host in hosts:
        host.await_rank("0 in 2, restart 0", "1 in 2, restart 0")
    (spare,) = start(1, "2")
    spare.await_that(lambda: len(agreement(spare).waiting) == 1, "it does not wait")
    end_well(tmp_path, *hosts, spare)
    assert spare.ranks == []


def test_a_launcher_that_could_start_says_when_it_will(start: Start) -> None:
    (alone,) = start(1, "1:2", "--rdzv-conf", "last_call_timeout=100")
    alone.await_that(
        lambda: "which is enough; it starts in 1 min" in alone.output, "it says nothing"
    )
    assert "distdbg run: 1 of 2 launchers joined 127.0.0.1:" in alone.output
    alone.process.terminate()
    assert alone.end() == 128 + signal.SIGTERM


def test_a_launcher_that_waits_for_others_ends_at_a_signal(start: Start) -> None:
    (alone,) = start(1, "2")
    alone.await_that(lambda: is_served(alone), "it does not serve")
    alone.await_that(lambda: len(agreement(alone).nodes) == 1, "it has not come")
    alone.await_that(lambda: "waits for the others" in alone.output, "it does not say so")
    assert "distdbg run: 1 of 2 launchers joined 127.0.0.1:" in alone.output
    assert "; it gives up in " in alone.output
    alone.process.terminate()
    assert alone.end() == 128 + signal.SIGTERM
