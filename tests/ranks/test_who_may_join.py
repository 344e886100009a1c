"""Processes that come to one place: with another token, as one rank twice, from two containers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from distdbg.runtime.store.holder import find_sockets
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
#: Prints the error of init, else what ops give.
PROGRAM = """
import sys
from datetime import timedelta
import numpy as np
import distdbg as dist
try:
    dist.init_process_group(timeout=timedelta(seconds=float(sys.argv[1])))
except dist.DistError as error:
    print(error)
    sys.exit()
rank, size = dist.get_rank(), dist.get_world_size()
x = np.full(100_000, rank + 1.0)
dist.all_reduce(x)
y = np.zeros(2)
send = dist.isend(np.full(2, 10.0 * rank), (rank + 1) % size)
dist.recv(y, (rank - 1) % size)
send.wait()
print(x[0], x[-1], y[0])
dist.destroy_process_group()
"""


def start(
    port: int, rank: int, limit_s: float, *, within: Sequence[str] = (), **variables: str
) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": "3",
        "DISTDBG_TOKEN": "one",
        **variables,
    }
    return subprocess.Popen(
        [*within, sys.executable, "-c", PROGRAM, str(limit_s)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=120)[0]
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.ranks
def test_a_client_with_another_token_is_reported_on_both_sides() -> None:
    port = free_port()
    server = start(port, 0, 10.0)
    client = said(start(port, 1, 30.0, DISTDBG_TOKEN="another"))
    assert client.startswith(
        f"rank 1 cannot join at tcp://127.0.0.1:{port}: it and the store there have different tokens "
        "(DISTDBG_TOKEN)\n"
    )
    text = said(server)
    assert "1 of 3 ranks joined" in text
    assert "the store refused a client once, last from 127.0.0.1: other token" in text
    assert "hint: give all ranks the same DISTDBG_TOKEN" in text


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.parametrize("rank", [0, 1])
def test_two_processes_of_one_rank_are_both_named(rank: int) -> None:
    port = free_port()
    others = [start(port, 0, 60.0)] + ([start(port, 1, 30.0)] if rank else [])
    pids = {process.pid for process in others[-1:]}
    try:
        if not rank:  # the second one would be the server, if it came first
            wait_until_served(port)
        second = start(port, rank, 30.0)
        pids.add(second.pid)
        text = said(second)
        expected = "rank 1 was announced twice at" if rank else "two processes are rank 0 at"
        assert text.startswith(expected), text
        assert {int(pid) for pid in re.findall(r"pid (\d+)", text.splitlines()[0])} == pids
    finally:
        for process in others:
            process.kill()
            said(process)


@pytest.mark.slow
@pytest.mark.ranks
def test_ranks_in_two_containers_are_connected_by_tcp() -> None:
    apart = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    allowed = subprocess.run([*apart, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode:
        pytest.skip(f"this kernel lets nobody make a pid namespace: {allowed.stderr.strip()}")
    port = free_port()
    ranks = [start(port, rank, 60.0, within=apart if rank == 2 else ()) for rank in range(3)]
    texts = [said(process) for process in ranks]
    assert texts == ["6.0 6.0 20.0\n", "6.0 6.0 0.0\n", "6.0 6.0 10.0\n"]


def wait_until_served(port: int) -> None:
    while not any(entry.listens for entry in find_sockets(port)):
        time.sleep(0.01)  # nothing announces that somebody listens
