"""Outlets of an agent: what one of them does wrong is nobody else's trouble."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.agent.host_agent import HostAgent
from distdbg.agent.launcher_orders import Attempt
from distdbg.agent.metering import metering as metering_module
from distdbg.agent.metering.metering import NotInTime
from distdbg.errors import ConfigError
from distdbg.export.metrics.model import Metrics
from distdbg.export.outlets.exporting import AgentOutlets, Outlet
from distdbg.export.outlets.sending import PushOutlet, remove_old
from distdbg.launch.exports import ExportOptions
from distdbg.record.folders import record_name
from tests.support.record_builder import RecordBuilder


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


def make(agent: HostAgent, *outlets: Outlet) -> AgentOutlets:
    return AgentOutlets(agent, ExportOptions(), makers=[lambda *_, one=one: one for one in outlets])


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
        raise ConfigError("there is no such gateway", hint="start one")

    good = Kept()
    exporting = AgentOutlets(agent, ExportOptions(), makers=[refuse, lambda *_: good])
    exporting.tick(time.monotonic_ns())
    assert good.calls == ["tick"]
    assert "distdbg: there is no such gateway\n  hint: start one\n" in capfd.readouterr().err


@pytest.mark.parametrize("end_s", [None, 7.0])
def test_each_outlet_has_its_share_of_the_last_moment(
    agent: HostAgent, monkeypatch: pytest.MonkeyPatch, end_s: float | None
) -> None:
    if end_s is not None:
        monkeypatch.setenv("DISTDBG_EXPORT_END_S", str(end_s))
    first, last = Kept(), Kept()
    exporting = make(agent, first, last)
    before_ns = time.monotonic_ns()
    exporting.close()
    after_ns = time.monotonic_ns()
    whole_ns = int((end_s or 2.0) * 1e9)
    assert before_ns + whole_ns <= last.deadline_ns <= after_ns + whole_ns
    assert before_ns + whole_ns // 2 <= first.deadline_ns <= after_ns + whole_ns // 2


def test_who_still_asks_for_numbers_at_the_end_holds_nobody_up(tmp_path: Path) -> None:
    orders, launcher = os.pipe()
    agent = make_agent(tmp_path, orders)
    metering = agent.metering
    agent.roster.tick(time.monotonic_ns())
    metering.finish(time.monotonic_ns())
    asked: list[type[BaseException]] = []

    def ask() -> None:
        try:
            metering.metrics(timeout_s=60.0)
        except NotInTime as error:
            asked.append(type(error))

    scraper = threading.Thread(target=ask)  # the loop does not answer: it is about to close
    scraper.start()
    while metering._asked is None:
        time.sleep(0.001)  # until it waits for the loop, which nothing else tells
    try:
        make(agent).close()
        assert metering.last_metrics() is not None
        scraper.join(30.0)
        assert asked == [NotInTime]
    finally:
        agent.close()
        for fd in (orders, launcher):
            os.close(fd)


def test_numbers_come_from_the_loop_and_are_kept_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metering_module, "KEPT_S", 600.0)
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
        monkeypatch.setattr(metering_module, "KEPT_S", 0.0)  # what is kept is too old now
        assert metering.metrics() is not first
    finally:
        os.close(launcher)
        loop.join()
        os.close(orders)
    with pytest.raises(NotInTime):
        metering.metrics()
    last = metering.last_metrics()
    assert last is not None
    assert last.value("distdbg_ops_total", "barrier", "dp", "none") == 3


def test_a_loop_that_does_not_answer_is_not_waited_for(agent: HostAgent) -> None:
    with pytest.raises(NotInTime):
        agent.metering.metrics(timeout_s=0.05)


def test_the_first_numbers_are_those_of_all_records_that_are_there(tmp_path: Path) -> None:
    orders, launcher = os.pipe()
    agent = make_agent(tmp_path, orders)
    agent.obey(Attempt(number=0, folder=tmp_path, pids={0: 2**22 + 1}))
    found: list[Metrics] = []
    asker = threading.Thread(target=lambda: found.append(agent.metering.metrics()))
    loop = threading.Thread(target=agent.run)
    asker.start()
    while not agent._done:  # asked before the loop has looked at anything
        time.sleep(0.001)  # until it has asked, which nothing else shows
    loop.start()
    asker.join()
    os.close(launcher)
    loop.join()
    os.close(orders)
    assert found[0].value("distdbg_ops_total", "barrier", "dp", "none") == 3


def test_an_agent_that_knows_no_rank_speaks_for_no_job(tmp_path: Path) -> None:
    orders, launcher = os.pipe()
    agent = HostAgent(tmp_path, "r", "n02", orders_fd=orders)
    loop = threading.Thread(target=agent.run)
    loop.start()
    try:
        metrics = agent.metering.metrics()
    finally:
        os.close(launcher)
        loop.join()
        os.close(orders)
    assert metrics.value("distdbg_world_size") is None
    assert metrics.value("distdbg_agent_hosts_missing") is None


@pytest.fixture
def hanging() -> Iterator[socket.socket]:
    """Accepts what comes, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_gateway_that_hangs_keeps_no_file_from_being_written(
    tmp_path: Path, hanging: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.export.outlets.sending.EVERY_S", 0.01)
    folder = tmp_path / "textfiles"
    folder.mkdir()
    orders, launcher = os.pipe()
    agent = make_agent(tmp_path, orders)
    agent.obey(Attempt(number=0, folder=tmp_path, pids={0: 2**22 + 1}))
    port = hanging.getsockname()[1]
    loop = threading.Thread(target=agent.run)
    loop.start()
    sending = PushOutlet(agent, ExportOptions(folder=folder, push=f"http://127.0.0.1:{port}"))
    hanging.settimeout(10.0)
    connection, _ = hanging.accept()  # a push is under way, and takes five seconds
    os.close(launcher)
    loop.join()
    os.close(orders)
    for path in folder.iterdir():
        path.unlink(missing_ok=True)  # a draft that has just got its name
    sending.close(time.monotonic_ns() + 10**9)
    connection.close()
    assert [path.suffix for path in folder.iterdir()] == [".prom"]


def test_the_file_counts_exports_that_fail_at_the_end_after_it_was_written(
    agent: HostAgent, tmp_path: Path
) -> None:
    folder = tmp_path / "textfiles"
    folder.mkdir()

    class Failing(Kept):
        def close(self, deadline_ns: int) -> None:
            agent.metering.counts.fail("traces")

    exporting = AgentOutlets(
        agent,
        ExportOptions(folder=folder),
        makers=[lambda agent, exports: PushOutlet(agent, exports), lambda *_: Failing()],
    )
    exporting.close()
    (file,) = folder.iterdir()
    [line] = [
        line
        for line in file.read_text().splitlines()
        if line.startswith("distdbg_agent_export_failures_total{") and 'signal="traces"' in line
    ]
    assert line.endswith("} 1")


def test_files_and_drafts_of_jobs_that_are_long_over_are_removed(tmp_path: Path) -> None:
    names = ["distdbg_a@n.prom", "distdbg_a@n.prom.77.tmp", "distdbg_b@n.prom", "other.prom"]
    for name in names:
        (tmp_path / name).touch()
    now_s = time.time()
    for name in names[:2] + names[3:]:
        os.utime(tmp_path / name, (now_s - 4000, now_s - 4000))
    remove_old(tmp_path, now_s)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["distdbg_b@n.prom", "other.prom"]
