"""The agents of two hosts, as far as what goes down: clocks in the records, orders on the pages."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.agent.launcher_orders import Attempt
from distdbg.agent.steering import Steering
from distdbg.control.holds import OTHER_HOST
from distdbg.control.page import read_page
from distdbg.follow.status import RankStatus
from distdbg.record.folders import record_name
from distdbg.record.rank_state import RankState
from distdbg.record.reader import RecordFile
from distdbg.runtime.store import TCPStore
from tests.support.record_examples import build_short

if TYPE_CHECKING:
    import pytest


class Host:
    """One agent's loop, as small as it gets."""

    def __init__(self, node: int, folder: Path, port: int) -> None:
        self.name = f"127.0.0.{node + 2}"
        self.ranks = (node,)
        self.folder = folder
        self.selector = selectors.DefaultSelector()
        self.steering = Steering(self.selector, self.name, "run")
        self.steering.follow(folder)
        store = f"launcher://127.0.0.1:{port}/none/0/agents"
        self.steering.join(
            Attempt(number=0, folder=folder, pids={}, store=store, nodes=2, node_rank=node)
        )

    def turn(self) -> None:
        for key, mask in self.selector.select(0.01):
            key.data(mask)
        self.steering.write_clock(self.ranks, time.monotonic_ns())

    def close(self) -> None:
        self.steering.close()
        self.selector.close()


def test_an_order_pauses_the_pages_and_the_clocks_are_in_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_TOKEN", "a secret")
    for rank in range(2):
        (tmp_path / record_name(rank)).write_bytes(build_short().to_bytes())
    store = TCPStore("127.0.0.1", 0, is_master=True, _token=b"a secret")
    hosts = [Host(node, tmp_path, store.port) for node in range(2)]
    try:
        hosts[1].steering.order("pause")
        deadline = time.monotonic() + 120
        while True:
            for host in hosts:
                host.turn()
            made = len(list(tmp_path.glob("control-*"))) == len(hosts)
            pages = [read_page(tmp_path, host.name) for host in hosts] if made else []
            states = []
            for rank in range(2):
                with RecordFile(tmp_path / record_name(rank)) as record:
                    states.append(record.state())
            are_paused = made and all(page.is_paused for page in pages)
            if are_paused and all(state.clock_error_ns for state in states):
                break
            assert time.monotonic() < deadline, (pages, states)
    finally:
        for host in hosts:
            host.close()
        store.close()
    assert (states[0].clock_offset_ns, states[0].clock_error_ns) == (0, 1)
    # One machine has one clock.
    assert abs(states[1].clock_offset_ns) <= states[1].clock_error_ns


def test_a_stop_at_one_agent_ends_the_job_on_all_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_TOKEN", "a secret")
    store = TCPStore("127.0.0.1", 0, is_master=True, _token=b"a secret")
    hosts = [Host(node, tmp_path, store.port) for node in range(2)]
    stopped: list[tuple[str, bool]] = []
    for host in hosts:
        host.steering.on_stop = lambda kill, name=host.name: stopped.append((name, kill))
    try:
        assert hosts[1].steering.order("stop", {"kill": True})["ticket"]
        deadline = time.monotonic() + 120
        while len(stopped) < 2 and time.monotonic() < deadline:
            for host in hosts:
                host.turn()
                host.steering.tick(time.monotonic_ns())
        assert [name for name, _ in stopped] == [
            hosts[1].name,
            hosts[0].name,
        ]  # the root is the last
        assert sorted(stopped) == [(host.name, True) for host in hosts]
    finally:
        for host in hosts:
            host.close()
        store.close()


def in_debugger(host: Host) -> RankStatus:
    return RankStatus(rank=host.ranks[0], host=host.name, pid=os.getpid(), state=RankState.DEBUGGED)


def test_the_clocks_of_all_hosts_stand_for_a_rank_in_a_debugger_until_its_host_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_TOKEN", "a secret")
    store = TCPStore("127.0.0.1", 0, is_master=True, _token=b"a secret")
    hosts = [Host(node, tmp_path, store.port) for node in range(2)]
    root, leaf = hosts
    debugged: set[str] = set()

    def turn_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline
            for host in hosts:
                host.turn()
                host.steering.look()
                is_held = host.name in debugged
                host.steering.report([in_debugger(host)] if is_held else [running(host)])
                host.steering.share_holds(is_held, time.monotonic_ns())

    def kinds(host: Host) -> list[int]:
        return [hold.rank for hold in read_page(tmp_path, host.name).holds]

    def are_paused(*expected: bool) -> bool:
        return tuple(read_page(tmp_path, host.name).is_paused for host in hosts) == expected

    try:
        for host in hosts:
            host.steering.order("resume")  # makes the page
        turn_until(lambda: len(list(tmp_path.glob("control-*"))) == 2)
        debugged.add(leaf.name)
        turn_until(lambda: are_paused(True, False))  # its own clock is held by the rank itself
        assert kinds(root) == [OTHER_HOST]
        debugged.add(root.name)
        turn_until(lambda: are_paused(True, True))
        debugged.clear()
        turn_until(lambda: are_paused(False, False))
        debugged.add(leaf.name)
        turn_until(lambda: are_paused(True, False))
        leaf.steering.close()  # nobody hears of that host any more
        hosts.remove(leaf)
        turn_until(lambda: not read_page(tmp_path, root.name).is_paused)
    finally:
        for host in (root, leaf):
            host.close()
        store.close()


def running(host: Host) -> RankStatus:
    return RankStatus(rank=host.ranks[0], host=host.name, pid=os.getpid(), state=RankState.RUNNING)
