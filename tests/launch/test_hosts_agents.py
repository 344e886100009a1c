"""The agents of several hosts: what the root's shows, and what is ordered at any of them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.errors import DistError
from distdbg.record import folders
from distdbg.record.reader import RecordFile
from tests.launch.agents_of_hosts import agent_of, await_that
from tests.support.hosts import Hosts, Launcher

pytestmark = pytest.mark.slow

#: The last rank comes to the second all_reduce when it is told to; the others wait for it there. Nobody comes
#: while it is too `early`, and all `stay` as long as they are to.
WAIT = """
import pathlib, time
from datetime import timedelta
import numpy as np
import distdbg as dist

folder = pathlib.Path(sys.argv[1])
dist.init_process_group()
x = np.ones(4)
dist.all_reduce(x)
group = dist.new_group(timeout=timedelta(seconds=float(sys.argv[2])))
say("ready")
while (folder / "early").exists():
    time.sleep(0.01)
while dist.get_rank() == dist.get_world_size() - 1 and not (folder / "go").exists():
    time.sleep(0.01)
try:
    dist.all_reduce(x, group=group)
except dist.DistError as error:
    say("raised", type(error).__name__, error.what)
    raise
say("done")
while (folder / "stay").exists():
    time.sleep(0.01)
dist.destroy_process_group()
"""


def start(hosts: Hosts, folder: Path, timeout_s: float, *, nproc: int = 1) -> list[Launcher]:
    """Three hosts."""
    flags = ["--nproc-per-node", str(nproc), hosts.script(WAIT), str(folder), str(timeout_s)]
    launchers = [hosts.launch(n, *hosts.static(3, n), *flags) for n in range(3)]
    for launcher in launchers:
        launcher.wait_for("ready", nproc)
    return launchers


def states(agent: AgentClient) -> dict[int, str]:
    return {row["rank"]: row["state"] for row in agent.ask("ranks")["ranks"]}


def hosts_of(agent: AgentClient) -> dict[int, str]:
    return {row["rank"]: row["host"] for row in agent.ask("ranks")["ranks"]}


def do_all_but_the_last_wait(agent: AgentClient, size: int) -> bool:
    """The last rank sleeps again and again, and is `asleep` when it has been looked at closely."""
    found = states(agent)
    last = found.pop(size - 1, "")
    return found == dict.fromkeys(range(size - 1), "waiting") and last in ("running", "asleep")


def test_the_first_hosts_agent_shows_the_ranks_of_all_hosts(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts, tmp_path, 60, nproc=2)
        with agent_of(hosts, 0) as root, agent_of(hosts, 2) as leaf:
            await_that(lambda: do_all_but_the_last_wait(root, 6), f"{states(root)}")
            assert hosts_of(root) == {rank: hosts.address(rank // 2) for rank in range(6)}
            assert set(states(leaf)) == {4, 5}
            [row] = [row for row in leaf.ask("ranks")["ranks"] if row["rank"] == 4]
            for signum, state in ((signal.SIGSTOP, "stopped"), (signal.SIGCONT, "waiting")) * 2:
                os.kill(row["pid"], signum)
                await_that(lambda state=state: states(root)[4] == state, state)
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]


def test_a_pause_at_any_agent_stops_the_deadlines_of_all_hosts(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        for word in ("early", "stay"):
            (tmp_path / word).touch()
        launchers = start(hosts, tmp_path, 4)
        with agent_of(hosts, 0) as root, agent_of(hosts, 1) as middle, agent_of(hosts, 2) as leaf:
            await_that(lambda: len(states(root)) == 3, "they do not find each other")
            everyone = (root, middle, leaf)
            assert leaf.ask("pause")["ticket"]
            await_that(lambda: all(is_paused(agent) for agent in everyone), "not all are paused")
            (tmp_path / "early").unlink()
            await_that(lambda: do_all_but_the_last_wait(root, 3), "they do not wait")
            time.sleep(5)  # longer than the ranks would wait
            assert do_all_but_the_last_wait(root, 3)
            (tmp_path / "go").touch()
            for launcher in launchers:
                launcher.wait_for("done")
            assert middle.ask("resume")["ticket"]
            await_that(lambda: not any(is_paused(agent) for agent in everyone), "paused")
        (tmp_path / "stay").unlink()
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]


def is_paused(agent: AgentClient) -> bool:
    return bool(agent.ask("about")["control"]["is_paused"])


def is_aborted(agent: AgentClient) -> bool:
    return agent.ask("about")["control"]["abort"] is not None


def test_an_abort_at_any_agent_ends_the_ranks_of_all_hosts(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts, tmp_path, 60)
        with agent_of(hosts, 0) as root, agent_of(hosts, 1) as middle, agent_of(hosts, 2) as leaf:
            await_that(lambda: len(states(root)) == 3, "they do not find each other")
            middle.ask("abort", what="the learning rate was wrong", by="ada")
            everyone = (root, middle, leaf)
            await_that(lambda: all(is_aborted(agent) for agent in everyone), "not all know it")
            (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [1, 1, 1]
        words = "the job was aborted by ada: the learning rate was wrong"
        for launcher in launchers:
            assert launcher.lines("raised") == [f"JobAborted {words}"]
            assert f"raised JobAborted: {words}" in launcher.err.split("STOPPED: ")[-1]


def test_records_say_how_far_the_clocks_of_hosts_are_apart(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts, tmp_path, 60)
        [run_folder] = hosts.run_folders
        [attempt] = folders.attempts(run_folder)

        def is_written(rank: int) -> bool:
            with RecordFile(attempt / folders.record_name(rank)) as record:
                state = record.state()
            if not state.clock_error_ns:
                return False
            assert abs(state.clock_offset_ns) <= state.clock_error_ns  # all are one clock here
            return True

        await_that(lambda: all(map(is_written, range(3))), "no clock words")
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]


@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_agent_is_started_again_and_takes_its_place(tmp_path: Path, number: int) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts, tmp_path, 60)
        with agent_of(hosts, number) as agent:
            killed = agent.ask("about")["pid"]
            os.kill(killed, signal.SIGKILL)
        launchers[number].wait_for("the agent of this host was killed by SIGKILL; restarting it")
        await_that(lambda: pid_of(hosts, number) not in (0, killed), "no new agent")
        with agent_of(hosts, 0) as root, agent_of(hosts, 1) as middle, agent_of(hosts, 2) as leaf:
            await_that(lambda: do_all_but_the_last_wait(root, 3), "the root does not see all ranks")
            assert leaf.ask("pause")["ticket"]
            everyone = (root, middle, leaf)
            await_that(lambda: all(map(is_paused, everyone)), "not all are paused")
            assert leaf.ask("resume")["ticket"]
            await_that(lambda: not any(map(is_paused, everyone)), "paused")
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]


def pid_of(hosts: Hosts, number: int) -> int:
    """That of the agent; 0: it does not answer."""
    try:
        with agent_of(hosts, number) as agent:
            return int(agent.ask("about")["pid"])
    except (OSError, DistError):
        return 0


def test_agents_meet_anew_when_a_host_has_joined(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        script = hosts.script(WAIT)
        launchers = []
        for n, count in enumerate((1, 2, 3)):
            flags = [*hosts.elastic("1:3", n), script, str(tmp_path), "60"]
            launchers.append(hosts.launch(n, *flags))
            launchers[n].wait_for("ready")
            with agent_of(hosts, 0) as root:
                await_that(lambda root=root, count=count: len(states(root)) == count, "too few")
                starts = {row["attempt"] for row in root.ask("ranks")["ranks"]}
                assert starts == {n}
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]
