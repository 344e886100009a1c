"""Ways to agents: connections to what an address on the command line means (`addresses.py`).

The agent at the end of a way connects on to those of all hosts of its job (`AgentClient.via`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from distdbg.client.addresses import LocalAddress, SshAddress, TcpAddress, parse_address
from distdbg.client.agent_client import AgentClient, AgentError
from distdbg.client.live_runs import agents_of, choose_run, find_live_runs
from distdbg.errors import DistError, DistNetworkError
from distdbg.record.host import host_name

#: How many hosts are asked at a time: each costs a pipe at every agent on its way.
_AT_ONCE: Final = 8


@dataclass(slots=True)
class AgentRoute:
    """The way to one agent. Thread-safe; `close` it when no connection is needed any more."""

    name: str
    """For people: the run, or where it is."""
    dial: Callable[[float], AgentClient]
    """Connect within so many seconds."""
    sockets: tuple[Path, ...] = ()
    """The agents of a local run, of all hosts that are simulated on this one."""
    on_close: Callable[[], None] = field(default=lambda: None)

    def connect(self, timeout_s: float = 5.0) -> AgentClient:
        """A connection with the agent at the end of the way. DistNetworkError."""
        return self.dial(timeout_s)

    def connect_root(self, timeout_s: float = 5.0) -> AgentClient:
        """One with the agent that knows all hosts of the job, where it can be reached."""
        client = self.connect(timeout_s)
        try:
            tree = client.ask("about")["tree"]
            if tree is None or tree["is_root"]:
                return client
            with suppress(AgentError):
                return client.via(rank=0)  # always on the first host
        except BaseException:
            client.close()
            raise
        return client

    def close(self) -> None:
        self.on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_way(text: str | None, environ: Mapping[str, str] = os.environ) -> AgentRoute:
    """The way to the agent that a command line means.

    UsageError when it means none, DistNetworkError when the host cannot be reached. Nothing is ever
    asked of a person: not on the terminal either.
    """
    address = parse_address(text)
    match address:
        case LocalAddress(run):
            runs = find_live_runs(host_name())
            live = choose_run(runs, run)
            sockets = tuple(one.socket for one in agents_of(runs, live) if one.socket is not None)
            return AgentRoute(live.run, live.connect, sockets=sockets)
        case TcpAddress(host, port):
            from distdbg.runtime.rendezvous.token import run_token

            token = run_token(environ)
            name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            return AgentRoute(
                name, lambda timeout_s: AgentClient.over_tcp(host, port, token, timeout_s=timeout_s)
            )
        case SshAddress():
            from distdbg.client.ssh import Tunnel

            tunnel = Tunnel.open(address, environ)
            return AgentRoute(f"{address}/{tunnel.run}", tunnel.connect, on_close=tunnel.close)


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """What the agent of one host says; or why it says nothing."""

    host: str
    answer: Any = None
    error: DistError | None = None


def ask_all_hosts(
    way: AgentRoute, do: str, *, timeout_s: float = 5.0, **arguments: Any
) -> list[HostAnswer]:
    """Ask the agents of all hosts of the job the same; in the order of the hosts.

    DistError when not even one can be asked.
    """
    with way.connect_root() as root:
        here = str(root.hello["host"])
        tree = root.ask("about")["tree"]
        hosts = [here]
        if tree is not None:
            known = [one["host"] for one in tree["hosts"] if not one["has_left"]]
            hosts = known if here in known else [here, *known]
        if len(hosts) == 1:
            answers = [HostAnswer(here, root.ask(do, timeout_s=timeout_s, **arguments))]
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                answers = list(
                    pool.map(lambda host: _ask_host(way, host, do, timeout_s, arguments), hosts)
                )
    for path in way.sockets:
        with suppress(DistNetworkError), AgentClient.at(path) as client:
            host = str(client.hello["host"])
            if host not in hosts:  # agents that have not found each other, or cannot
                answers.append(HostAnswer(host, client.ask(do, timeout_s=timeout_s, **arguments)))
    return answers


def _ask_host(
    way: AgentRoute, host: str, do: str, timeout_s: float, arguments: dict[str, Any]
) -> HostAnswer:
    try:
        with way.connect() as client, client.via(host) as other:
            return HostAnswer(host, other.ask(do, timeout_s=timeout_s, **arguments))
    except DistError as error:
        return HostAnswer(host, error=error)
