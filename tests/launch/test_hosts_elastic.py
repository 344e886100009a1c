"""Hosts that join and leave a job while it runs, played by launchers on addresses of their own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from distdbg.testing.hosts import Hosts

pytestmark = pytest.mark.slow

#: Reduces until WORLD_SIZE is as large as it is told; so it has to be started anew to end.
UNTIL = """
import os, sys, time
import numpy as np
import distdbg as dist

dist.init_process_group()
me = dist.get_rank(), dist.get_world_size()
print("start", *me, os.environ["GROUP_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
x = np.ones(4)
while True:
    dist.all_reduce(x)
    if me[1] == int(sys.argv[1]):
        break
    time.sleep(0.01)
dist.destroy_process_group()
"""


def test_a_host_that_joins_has_all_start_anew_with_new_numbers(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        flags = [*hosts.elastic("1:3"), "--nproc-per-node", "2", hosts.script(UNTIL), "6"]
        launchers = [hosts.launch(0, *flags)]
        launchers[0].wait_for("start 0 2 0 0")
        launchers.append(hosts.launch(1, *flags))
        launchers[1].wait_for("start 2 4 1 0")
        launchers.append(hosts.launch(2, *flags))
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]
        assert launchers[0].lines("start") == [
            "0 2 0 0", "0 4 0 0", "0 6 0 0", "1 2 0 0", "1 4 0 0", "1 6 0 0",
        ]  # fmt: skip
        assert launchers[2].lines("start") == ["4 6 2 0", "5 6 2 0"]
        assert "1 launcher waits to take part; the ranks start anew" in launchers[0].err
        assert len(hosts.run_folders) == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_the_others_go_on_without_a_host_that_goes(tmp_path: Path, signum: int) -> None:
    with Hosts(tmp_path) as hosts:
        flags = [*hosts.elastic("1:3"), "--nproc-per-node", "2", hosts.script(UNTIL), "4"]
        launchers = [hosts.launch(n, *flags) for n in range(3)]
        for launcher in launchers:
            launcher.wait_for(" 6 ", 2)
        launchers[1].send(signum)
        assert launchers[1].wait() == (143 if signum == signal.SIGTERM else -signal.SIGKILL)
        assert [launchers[0].wait(), launchers[2].wait()] == [0, 0]
        # No restart was used up.
        assert launchers[0].lines("start")[0] == "0 4 0 0"
        assert launchers[2].lines("start")[0] == "2 4 1 0"
        assert "is gone; the ranks start anew (0 of 0 restarts used)" in launchers[0].err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_too_few_hosts_end_with_who_is_there(tmp_path: Path, signum: int) -> None:
    with Hosts(tmp_path) as hosts:
        conf = (
            "keep_alive_interval=0.3,keep_alive_max_attempt=4,join_timeout=2,last_call_timeout=0.2"
        )
        flags = [*hosts.elastic("2:3", conf), hosts.script(UNTIL), "9"]
        launchers = [hosts.launch(n, *flags) for n in range(2)]
        for launcher in launchers:
            launcher.wait_for("start", 1)
        launchers[1].send(signum)
        launchers[1].wait()
        assert launchers[0].wait() == 6
        assert "is gone; the ranks start anew" in launchers[0].err
        assert "RendezvousError: 1 of 2 launchers came to" in launchers[0].err
        assert "on 127.0.0.2" in launchers[0].err.split("1 of 2 launchers came to")[1]
