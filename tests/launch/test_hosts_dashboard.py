"""A dashboard's feed on a job of two hosts: what the other agent knows, and a host that is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.client.feed.connections import RunRoute, newest_run
from distdbg.client.live_feed import LiveFeed
from distdbg.client.live_runs import LiveRun, agents_of, find_live_runs
from distdbg.record.rank_state import RankState
from distdbg.view.feed import Topic
from distdbg.view.snapshot import FeedLink, OpKey, Snapshot
from tests.support.hosts import Hosts

pytestmark = pytest.mark.slow

JOB = """
import os, pathlib, sys, time
import numpy as np
import distdbg as dist

dist.init_process_group()
rank = dist.get_rank()
x = np.ones(4)
for _ in range(20):
    if rank == 3:
        time.sleep(0.005)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
print("the same line", flush=True)
print("of rank", rank, flush=True)
say("ready", rank)
if rank == 3:
    while not (pathlib.Path(sys.argv[1]) / "go").exists():
        time.sleep(0.01)
dist.barrier()
dist.destroy_process_group()
"""


def await_snapshot(feed: LiveFeed, is_it: Callable[[Snapshot], object]) -> Snapshot:
    deadline = time.monotonic() + 120
    while not is_it(snapshot := feed.latest()):
        assert time.monotonic() < deadline, snapshot
        time.sleep(0.05)  # a feed never calls back
    return snapshot


def await_agents(host: str, tempdir: str) -> list[LiveRun]:
    """The agents of both hosts: they begin to listen when ranks may be at work already."""
    deadline = time.monotonic() + 120
    while True:
        found = find_live_runs(host, tempdir=tempdir)
        if len({run.host for run in found}) == 2:
            return found
        assert time.monotonic() < deadline, f"no agents of two hosts, but {found}"
        time.sleep(0.05)  # no agent announces itself to those who are no ranks


def other_socket(hosts: Hosts, runs: list[LiveRun]) -> Path:
    (path,) = [run.socket for run in runs if run.host == hosts.address(1)]
    assert path is not None
    return path


def test_ranks_of_two_hosts_are_one_job_until_a_host_is_lost(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        flags = ["--nproc-per-node", "2", "--tee", "3", hosts.script(JOB), str(tmp_path)]
        launchers = [hosts.launch(n, *hosts.static(2, n), *flags) for n in range(2)]
        runs = hosts.runs.parent
        for launcher in launchers:
            launcher.wait_for("ready", 2)
        found = await_agents(hosts.address(0), str(runs))
        live = newest_run(found)
        assert live is not None
        feed = LiveFeed(RunRoute(agents_of(found, live)))
        try:
            feed.want(frozenset(Topic))
            snapshot = await_snapshot(
                feed,
                lambda s: (
                    len(s.ranks) == 4
                    and all(s.ranks[r].state is RankState.WAITING for r in range(3))
                    and any(row.kind == "all_reduce" and row.count == 20 for row in s.ops)
                    and any(len(group.issued) == 4 for group in s.groups)
                    and s.waits
                ),
            )
            assert [host.host for host in snapshot.hosts] == [hosts.address(0), hosts.address(1)]
            (ops,) = [row for row in snapshot.ops if row.kind == "all_reduce"]
            assert ops.late[0][0] == 3
            (group,) = snapshot.groups
            assert group.issued == {0: 21, 1: 21, 2: 21, 3: 20}

            detail = feed.op(OpKey(group=group.name, seq=20))
            assert detail is not None
            assert [one.rank for one in detail.arrivals] == [0, 1, 2, 3]
            last = max(detail.arrivals, key=lambda one: one.issued or 0)
            assert last.rank == 3
            now = time.time()
            await_snapshot(feed, lambda _: all(feed.bars(range(4), now - 60, now).values()))
            bars = feed.bars(range(4), now - 60, time.time())
            starts = [bars[rank][19].started for rank in range(4)]
            assert all(start is not None for start in starts)
            assert max(starts) - min(starts) < 0.1  # one moment on one clock
            closely = feed.rank(3)
            assert closely is not None
            assert closely.row.host == hosts.address(1)

            await_snapshot(feed, lambda _: sum(len(line.ranks) for line in feed.log()) >= 12)
            lines = feed.log()
            assert sorted(line.ranks for line in lines if line.text.startswith("of rank")) == [
                (0,),
                (1,),
                (2,),
                (3,),
            ]
            same = [line.ranks for line in lines if line.text == "the same line"]
            assert sorted(rank for ranks in same for rank in ranks) == [0, 1, 2, 3]

            with AgentClient.at(other_socket(hosts, found)) as other:
                agent = other.hello["pid"]
            os.kill(agent, signal.SIGSTOP)
            try:
                lost = await_snapshot(feed, lambda s: any(host.is_lost for host in s.hosts))
                assert lost.link is FeedLink.LIVE
                assert len(lost.ranks) == 4
            finally:
                os.kill(agent, signal.SIGCONT)
            await_snapshot(feed, lambda s: not any(host.is_lost for host in s.hosts))
            (tmp_path / "go").touch()
            over = await_snapshot(feed, lambda s: s.is_over)
            assert {row.state for row in over.ranks.values()} == {RankState.ENDED}
        finally:
            feed.close()
        assert [launcher.wait() for launcher in launchers] == [0, 0]
