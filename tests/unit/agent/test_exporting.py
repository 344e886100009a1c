"""Outlets of an agent: what one of them does wrong is nobody else's trouble."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.agent.exporting import LAST_S, Exporting, Outlet
from distdbg.agent.host_agent import HostAgent
from distdbg.agent.metering.metering import KEPT_S, NotInTime
from distdbg.errors import ConfigError
from distdbg.launch.exports import Exports
from distdbg.record.folders import record_name
from distdbg.testing.record_builder import RecordBuilder


class Kept:
    """An outlet that keeps what it was told; `fails` names the calls that raise."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self.deadline_ns = 0
        self._fails = fails

    def tick(self, now_ns: int) -> None:
        self._call("tick")

    def begin_anew(self) -> None:
        self._call("begin_anew")

    def close(self, deadline_ns: int) -> None:
        self.deadline_ns = deadline_ns
        self._call("close")

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self._fails:
            raise RuntimeError(f"{name} has a bug")


def make_agent(folder: Path, orders_fd: int | None = None) -> HostAgent:
    """One that watches a rank that is gone; with orders it stays until nobody gives any more."""
    record = RecordBuilder(host="n01", run="r", pid=2**22 + 1, counter_count=2)
    record.count(0, record.add_group("dp", size=1), "barrier", ended=3)
    record.set_state(counter_count=1)
    (folder / record_name(0)).write_bytes(record.to_bytes())
    return HostAgent(folder, "r", "n01", orders_fd=orders_fd)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[HostAgent]:
    agent = make_agent(tmp_path)
    yield agent
    agent.close()


def make(agent: HostAgent, *outlets: Outlet) -> Exporting:
    return Exporting(agent, Exports(), makers=[lambda *_, one=one: one for one in outlets])


def test_an_outlet_that_fails_is_told_nothing_more_and_the_others_go_on(
    agent: HostAgent, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Kept("tick"), Kept()
    exporting = make(agent, bad, good)
    for _ in range(2):
        exporting.tick(time.monotonic_ns())
    exporting.begin_anew()
    exporting.close()
    assert bad.calls == ["tick"]
    assert good.calls == ["tick", "tick", "begin_anew", "close"]
    assert caplog.text.count("tick has a bug") == 1


def test_an_outlet_that_cannot_be_made_is_said_and_the_others_are_made(
    agent: HostAgent, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> Outlet:
        raise ConfigError("there is no such gateway")

    good = Kept()
    exporting = Exporting(agent, Exports(), makers=[refuse, lambda *_: good])
    exporting.tick(time.monotonic_ns())
    assert good.calls == ["tick"]
    assert "there is no such gateway" in capfd.readouterr().err


def test_each_outlet_has_its_share_of_the_last_moment(agent: HostAgent) -> None:
    first, last = Kept(), Kept()
    exporting = make(agent, first, last)
    began_ns = time.monotonic_ns()
    exporting.close()
    assert began_ns < first.deadline_ns < last.deadline_ns
    assert last.deadline_ns - began_ns <= (LAST_S + 1) * 1e9


def test_who_still_asks_for_numbers_at_the_end_holds_nobody_up(tmp_path: Path) -> None:
    orders, launcher = os.pipe()
    agent = make_agent(tmp_path, orders)
    metering = agent.metering
    agent.roster.tick(time.monotonic_ns())
    metering.finish(time.monotonic_ns())
    asked: list[type[BaseException]] = []

    def ask() -> None:
        try:
            metering.metrics(timeout_s=30.0)
        except NotInTime as error:
            asked.append(type(error))

    scraper = threading.Thread(target=ask)  # the loop does not answer: it is about to close
    scraper.start()
    while metering._asked is None:
        time.sleep(0.001)  # until it waits for the loop, which nothing else tells
    try:
        make(agent).close()
        assert metering.last_metrics() is not None
        scraper.join(10.0)
        assert asked == [NotInTime]
    finally:
        agent.close()
        for fd in (orders, launcher):
            os.close(fd)


def test_numbers_come_from_the_loop_and_are_kept_for_a_moment(tmp_path: Path) -> None:
    orders, launcher = os.pipe()
    agent = make_agent(tmp_path, orders)
    metering = agent.metering
    loop = threading.Thread(target=agent.run)
    agent.roster.tick(time.monotonic_ns())
    loop.start()
    try:
        first = metering.metrics()
        assert first.value("distdbg_ops_total", "barrier", "dp", "none") == 3
        assert metering.metrics() is first
        time.sleep(KEPT_S + 0.05)  # what is kept gets too old
        assert metering.metrics() is not first
    finally:
        os.close(launcher)
        loop.join()
        os.close(orders)
    time.sleep(KEPT_S + 0.05)
    with pytest.raises(NotInTime):
        metering.metrics()
    last = metering.last_metrics()
    assert last is not None
    assert last.value("distdbg_ops_total", "barrier", "dp", "none") == 3


def test_a_loop_that_does_not_answer_is_not_waited_for(agent: HostAgent) -> None:
    with pytest.raises(NotInTime):
        agent.metering.metrics(timeout_s=0.05)
