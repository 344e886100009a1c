"""The agents of hosts that are played on this one, for tests."""

import time
from collections.abc import Callable
from typing import Any

from distdbg.client.agent_client import AgentClient
from distdbg.record import folders
from tests.support.hosts import Hosts

PATIENCE_S = 120.0


def agent_of(hosts: Hosts, number: int) -> AgentClient:
    """A connection to the agent of a host, once it is there."""
    [run_folder] = hosts.run_folders
    tempdir = str(hosts.runs.parent)
    path = folders.agent_socket(run_folder.name, hosts.address(number), tempdir)
    await_that(path.exists, f"{path} is not there")
    return AgentClient.at(path)


def await_that(condition: Callable[[], Any], what: str, limit_s: float = PATIENCE_S) -> None:
    """Wait until it is so; `what` says what is not."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)  # an agent is asked, it does not call
