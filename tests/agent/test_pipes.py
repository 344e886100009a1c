"""Connections with an agent that become pipes: to a stand-in for the debugger of a rank."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distdbg.agent.proxy import MAX_WAITING_NBYTES
from distdbg.client.agent_client import AgentClient, AgentError
from distdbg.control import sockets
from distdbg.errors import UsageError
from tests.agent.conftest import Job

pytestmark = pytest.mark.slow

WAIT = """
print("ready", flush=True)
time.sleep(600)
"""


@contextmanager
def debugger(job: Job, client: AgentClient, rank: int) -> Iterator[socket.socket]:
    """A socket that listens where that of the rank would."""
    folder = Path(client.ask("about")["folder"])
    listening = sockets.listen(folder / f"debug-rank{rank}.sock")
    listening.settimeout(10)
    with listening:
        yield listening


def rank_is_seen(job: Job, client: AgentClient, rank: int) -> None:
    row = job.await_row(client, rank, lambda row: row["state"] != "starting")
    assert row


def test_a_client_speaks_with_the_debugger_of_a_rank(start_job: Callable[..., Job]) -> None:
    job = start_job(WAIT)
    with job.connect() as client:
        rank_is_seen(job, client, 1)
        with pytest.raises(AgentError, match="rank 1 is not in a debugger"):
            client.debug(1)
    with job.connect() as client, debugger(job, client, 1) as listening:
        with client.debug(1) as ours:
            theirs, _ = listening.accept()
            with theirs:
                theirs.sendall(b'{"distdbg": "debugger"}\n')
                ours.sendall(b'{"line": "p x"}\n')
                assert ours.recv(100) == b'{"distdbg": "debugger"}\n'
                assert theirs.recv(100) == b'{"line": "p x"}\n'
                theirs.sendall(b"the last")
            assert ours.recv(100) == b"the last"
            assert ours.recv(100) == b""
        with pytest.raises(UsageError, match="was forwarded and cannot be used"):
            client.ask("about")


def test_a_client_that_leaves_is_an_end_for_the_rank(start_job: Callable[..., Job]) -> None:
    job = start_job(WAIT)
    with job.connect() as client, debugger(job, client, 0) as listening:
        ours = client.debug(0)
        theirs, _ = listening.accept()
        with theirs:
            ours.sendall(b"bye")
            ours.close()
            assert theirs.recv(100) == b"bye"
            assert theirs.recv(100) == b""


def test_who_does_not_read_holds_nobody_up_and_costs_little(start_job: Callable[..., Job]) -> None:
    job = start_job(WAIT)
    with job.connect() as client, debugger(job, client, 0) as listening, client.debug(0) as ours:
        theirs, _ = listening.accept()
        theirs.setblocking(False)
        sent = 0
        idle = threading.Event()
        while not idle.wait(0.05):  # as long as the agent takes something now and then
            before = sent
            try:
                while True:
                    sent += theirs.send(bytes(1 << 16))
            except BlockingIOError:
                if sent == before:
                    idle.set()
        # What two pairs of sockets hold, and the agent's part.
        assert sent < MAX_WAITING_NBYTES * 2 + (4 << 20)
        with job.connect() as other:
            assert other.ask("ranks")["ranks"]
        ours.settimeout(10)
        got = 0
        while got < sent:
            got += len(ours.recv(1 << 20))
        theirs.close()
        assert ours.recv(1) == b""


def test_requests_that_cannot_become_pipes_are_refused(start_job: Callable[..., Job]) -> None:
    job = start_job(WAIT)
    with job.connect() as client:
        rank_is_seen(job, client, 0)
        for words, why in (
            ({"do": "debug"}, "'rank' is a number"),
            ({"do": "debug", "rank": True}, "'rank' is a number"),
            ({"do": "debug", "rank": 7}, "there is no rank 7: the job has ranks 0-1"),
            ({"do": "via"}, "'host' is the name of a host"),
            ({"do": "via", "rank": -1}, "'host' is the name of a host"),
            ({"do": "via", "host": "n99"}, "no agent of host n99 is in touch"),
            ({"do": "via", "rank": 7}, "there is no rank 7"),
        ):
            with pytest.raises(AgentError, match=why):
                client.ask(**words)  # type: ignore[arg-type]
        with client.via(rank=0) as same:
            assert same.hello["pid"] == client.hello["pid"]
            assert same.ask("about")["host"] == client.hello["host"]
    with job.connect() as client:
        client.ask("subscribe", to=["findings"])
        with pytest.raises(AgentError, match="has a subscription"):
            client.debug(0)
