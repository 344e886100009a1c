"""A client of one host's agent that speaks with those of other hosts, and with their ranks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from distdbg.client.agent_client import AgentClient, AgentError
from distdbg.client.ways import AgentRoute, ask_all_hosts
from distdbg.control import sockets
from distdbg.errors import DistNetworkError
from distdbg.record import folders
from tests.launch.agents_of_hosts import agent_of, await_that
from tests.support.hosts import Hosts, Launcher

pytestmark = pytest.mark.slow

WAIT = """
import pathlib, time
import numpy as np
import distdbg as dist

dist.init_process_group()
x = np.ones(4)
dist.all_reduce(x)
say("ready")
while not (pathlib.Path(sys.argv[1]) / "go").exists():
    time.sleep(0.01)
dist.destroy_process_group()
"""


def start(hosts: Hosts, folder: Path, count: int) -> list[Launcher]:
    flags = ["--nproc-per-node", "1", hosts.script(WAIT), str(folder)]
    launchers = [hosts.launch(n, *hosts.static(count, n), *flags) for n in range(count)]
    for launcher in launchers:
        launcher.wait_for("ready")
    with agent_of(hosts, 0) as root:
        await_that(lambda: len(root.ask("ranks")["ranks"]) == count, "they do not meet")
    return launchers


def dial(hosts: Hosts, number: int, _: float) -> AgentClient:
    return agent_of(hosts, number)


def state_of(agent: AgentClient, rank: int) -> str:
    return str({row["rank"]: row["state"] for row in agent.ask("ranks")["ranks"]}[rank])


def is_paused(agent: AgentClient) -> bool:
    return bool(agent.ask("about")["control"]["is_paused"])


def listen_as_rank(hosts: Hosts, rank: int) -> socket.socket:
    """A stand-in for the debugger of a rank."""
    [run_folder] = hosts.run_folders
    [attempt] = folders.attempts(run_folder)
    listening = sockets.listen(attempt / f"debug-rank{rank}.sock")
    listening.settimeout(10)
    return listening


def test_any_agent_leads_to_any_other_and_to_its_ranks(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts, tmp_path, 3)
        for begin in range(3):
            for end in range(3):
                with agent_of(hosts, begin) as first, first.via(hosts.address(end)) as other:
                    assert other.hello["host"] == hosts.address(end)
                    assert other.ask("ops") == {"ops": []}
        with listen_as_rank(hosts, 2) as listening, agent_of(hosts, 1).debug(2) as ours:
            theirs, _ = listening.accept()
            with theirs:
                theirs.sendall(b"hello")
                ours.sendall(b"yes?")
                assert (ours.recv(9), theirs.recv(9)) == (b"hello", b"yes?")
            assert ours.recv(9) == b""
        with agent_of(hosts, 1) as middle, pytest.raises(AgentError, match="is not in a debugger"):
            middle.debug(2)
        with agent_of(hosts, 1) as middle, pytest.raises(AgentError, match="no agent of host n99"):
            middle.via("n99")
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]


def test_stacks_are_those_of_all_hosts_wherever_they_are_asked_for(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts, tmp_path, 3)
        for number in range(3):
            way = AgentRoute(hosts.address(number), partial(dial, hosts, number))
            answers = ask_all_hosts(way, "stacks", timeout_s=20.0, native=False)
            assert [one.host for one in answers] == [hosts.address(n) for n in range(3)]
            ranks = [set(one.answer["how"]) for one in answers]
            assert ranks == [{"0"}, {"1"}, {"2"}], answers
        command = [sys.executable, "-m", "distdbg", "stacks", "--python", "--json"]
        done = subprocess.run(command, env=hosts.environ, capture_output=True, check=False)
        assert set(json.loads(done.stdout)["how"]) == {"0", "1", "2"}, done
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]


def test_who_does_not_read_delays_no_order_and_no_row(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts, tmp_path, 2)
        with listen_as_rank(hosts, 1) as listening, agent_of(hosts, 0) as root:
            pid = next(r["pid"] for r in root.ask("ranks")["ranks"] if r["rank"] == 1)
            with agent_of(hosts, 0) as to_rank, to_rank.debug(1) as ours:
                theirs, _ = listening.accept()
                theirs.setblocking(False)
                sent, before = 0, -1
                while sent != before:  # until nobody takes any more
                    before = sent
                    try:
                        while True:
                            sent += theirs.send(bytes(1 << 16))
                    except BlockingIOError:
                        time.sleep(0.2)  # the agents may still take some
                assert sent < 8 << 20
                os.kill(pid, signal.SIGSTOP)
                await_that(lambda: state_of(root, 1) == "stopped", "the row is late", 3)
                os.kill(pid, signal.SIGCONT)
                with agent_of(hosts, 1) as leaf:
                    root.ask("pause")
                    await_that(lambda: is_paused(leaf), "the order is late", 3)
                    root.ask("resume")
                ours.settimeout(10)
                got = 0
                while got < sent:
                    got += len(ours.recv(1 << 20))
                theirs.close()
                assert ours.recv(1) == b""
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0]


def test_an_agent_that_is_gone_ends_its_pipes_with_a_word(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts, tmp_path, 2)
        with (
            listen_as_rank(hosts, 1) as listening,
            agent_of(hosts, 0).via(hosts.address(1)) as other,
            agent_of(hosts, 0).debug(1) as ours,
        ):
            theirs, _ = listening.accept()
            theirs.sendall(b'{"write": "he')
            assert ours.recv(99) == b'{"write": "he'
            os.kill(other.ask("about")["pid"], signal.SIGKILL)
            ours.settimeout(10)
            with ours.makefile("rb") as said:
                last = said.read().splitlines()[-1]
            assert json.loads(last)["ended"].startswith("a link of host 127.0.0.2")
            with pytest.raises(DistNetworkError, match="is gone: a link of host"):
                other.ask("about")
            theirs.close()
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0]
