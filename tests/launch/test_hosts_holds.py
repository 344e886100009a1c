"""A rank in a debugger on one of several hosts: the clocks of all hosts stand, and run again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.control.page import read_page
from distdbg.record import folders
from tests.launch.agents_of_hosts import agent_of, await_that
from tests.support.hosts import Hosts, Launcher

pytestmark = pytest.mark.slow

#: The last rank sits in a debugger before an op in which the others wait for it, unless it is too `early`.
STOPS = """
import pathlib, time
from datetime import timedelta
import numpy as np
import distdbg as dist
from distdbg.debugger.session import stop_here

dist.init_process_group()
group = dist.new_group(timeout=timedelta(seconds=float(sys.argv[1])))
x = np.ones(4)
dist.all_reduce(x)
say("ready")
if dist.get_rank() == dist.get_world_size() - 1:
    stop_here("breakpoint")
while (pathlib.Path(sys.argv[2]) / "early").exists():
    time.sleep(0.01)
try:
    dist.all_reduce(x, group=group)
except dist.DistError as error:
    say("raised", type(error).__name__, error.what)
    raise
say("done")
dist.destroy_process_group()
"""


def start(hosts: Hosts, count: int = 2, timeout_s: float = 30) -> list[Launcher]:
    flags = ["--nproc-per-node", "1", hosts.script(STOPS), str(timeout_s), str(hosts.runs.parent)]
    launchers = [hosts.launch(n, *hosts.static(count, n), *flags) for n in range(count)]
    for launcher in launchers:
        launcher.wait_for("ready", 1)
    return launchers


def holders(hosts: Hosts, number: int) -> list[int]:
    """Who holds the clock of a host: ranks, and -2 for another host."""
    [run_folder] = hosts.run_folders
    attempt = next(reversed(folders.attempts(run_folder)))
    return [hold.rank for hold in read_page(attempt, hosts.address(number)).holds]


def are_held(hosts: Hosts, *expected: list[int]) -> bool:
    return all(holders(hosts, number) == found for number, found in enumerate(expected))


def test_the_deadlines_of_another_host_stand_while_a_rank_is_debugged(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        early = hosts.runs.parent / "early"
        early.touch()
        launchers = start(hosts, 3, timeout_s=3)
        await_that(lambda: are_held(hosts, [-2], [-2], [2]), "not all clocks stand")
        early.unlink()
        with agent_of(hosts, 0) as root:
            await_that(lambda: root.ask("verdict")["lines"], "nobody waits")
            time.sleep(4)  # longer than the others would wait
            [stopped] = root.ask("breakpoints")["stopped"]
            assert (stopped["rank"], stopped["host"]) == (2, hosts.address(2))
            assert stopped["why"] == "breakpoint"
            lines = root.ask("verdict")["lines"]
            assert lines[0].startswith("ranks 0-1 wait for rank 2, in the debugger at ")
            assert root.ask("continue") == {"ranks": [2], "failed": []}
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]
        for launcher in launchers:
            assert "done" in launcher.out


def test_a_rule_armed_at_any_agent_is_on_the_pages_of_all_hosts(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts)
        with agent_of(hosts, 0) as root, agent_of(hosts, 1) as leaf:
            await_that(lambda: are_held(hosts, [-2], [1]), "not all clocks stand")
            ids = [leaf.ask("break", rule="kind=gather")["id"]]
            await_that(lambda: len(rules(root)) == 1, "the root has not heard of it")
            ids.append(root.ask("break", rule="kind=scatter")["id"])
            assert len(set(ids)) == 2
            for agent in (root, leaf):
                await_that(lambda agent=agent: set(rules(agent)) == set(ids), "not all have both")
            leaf.ask("clear", breakpoint=ids[1])
            await_that(lambda: rules(root) == ids[:1], "it is not cleared")
            leaf.ask("clear")
            await_that(lambda: not rules(root), "it is not cleared")
            root.ask("continue")
        assert [launcher.wait() for launcher in launchers] == [0, 0]


def rules(agent: AgentClient) -> list[int]:
    return [rule["id"] for rule in agent.ask("breakpoints")["rules"]]


def test_an_agent_that_is_killed_leaves_no_hold_of_its_own(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts)
        await_that(lambda: are_held(hosts, [-2], [1]), "not all clocks stand")
        for number in (0, 1):
            with agent_of(hosts, number) as agent:
                killed = agent.ask("about")["pid"]
            os.kill(killed, signal.SIGKILL)
            launchers[number].wait_for("restarting it")
            # Its successor has heard of it, and holds it in its own name.
            await_that(lambda killed=killed: is_held_by_others(hosts, killed), "not held again")
        with agent_of(hosts, 1) as leaf:
            leaf.ask("continue")
        assert [launcher.wait() for launcher in launchers] == [0, 0]


def is_held_by_others(hosts: Hosts, killed: int) -> bool:
    [run_folder] = hosts.run_folders
    attempt = next(reversed(folders.attempts(run_folder)))
    holds = read_page(attempt, hosts.address(0)).holds
    return [hold.rank for hold in holds] == [-2] and holds[0].pid != killed


def test_a_rank_that_is_killed_at_its_prompt_lets_all_clocks_run(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        launchers = start(hosts)
        await_that(lambda: are_held(hosts, [-2], [1]), "not all clocks stand")
        with agent_of(hosts, 1) as leaf:
            [row] = leaf.ask("ranks")["ranks"]
        os.kill(row["pid"], signal.SIGKILL)
        codes = [launcher.wait() for launcher in launchers]
        assert 0 not in codes
        assert "at the prompt of its debugger" in launchers[0].err + launchers[1].err
