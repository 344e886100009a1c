"""Launchers of a job as threads, each with its own rendezvous, over real stores on 127.0.0.x."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from distdbg.launch.rendezvous.registry import make_rendezvous
from distdbg.launch.rendezvous.round import LauncherRound, NodeFacts
from distdbg.launch.rendezvous.shared import SharedRendezvous

QUICK = {"last_call_timeout": "0.3", "keep_alive_interval": "0.2", "keep_alive_max_attempt": "10"}


PATIENCE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Options:
    rdzv_backend: str = "c10d"
    rdzv_endpoint: str = ""
    rdzv_host: str = "127.0.0.1"
    rdzv_port: int = 0
    rdzv_id: str = "job 7"
    rdzv_conf: dict[str, str] = field(default_factory=dict)
    min_nodes: int = 1
    max_nodes: int = 1
    node_rank: int = 0
    local_addr: str | None = None
    standalone: bool = False


class Node:
    """One launcher: what it asks for runs in a thread of its own."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.rendezvous = make_rendezvous(options)
        self.pool = ThreadPoolExecutor(1)

    def start(self) -> Future[LauncherRound]:
        facts = NodeFacts(name=self.name, addr="127.0.0.1", host=self.name, nproc=2)
        return self.pool.submit(self.rendezvous.next_round, facts)

    def die(self) -> None:
        """As a SIGKILL would: no more beats, no good-bye."""
        rendezvous: Any = self.rendezvous
        assert isinstance(rendezvous, SharedRendezvous)
        if rendezvous._keeper is not None:
            rendezvous._keeper.stop()
        if rendezvous._reached is not None:
            rendezvous._reached.store.close()
        rendezvous._is_shut = True

    def leave(self) -> None:
        self.rendezvous.shutdown()
        self.pool.shutdown()


MakeNodes = Callable[..., list[Node]]


def meet(*nodes: Node) -> list[LauncherRound]:
    found = [node.start() for node in nodes]
    return [future.result(PATIENCE_S) for future in found]


def names(found: LauncherRound) -> list[str]:
    return [node.name for node in found.nodes]


def await_that(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)  # nothing announces what a thread of the launcher has seen


def agree(rounds: list[LauncherRound], number: int) -> list[str]:
    """All in the same round, each in its own place; returns the names in order."""
    order = names(rounds[0])
    assert all(names(found) == order and found.number == number for found in rounds)
    assert sorted(found.node_rank for found in rounds) == list(range(len(order)))
    return order
