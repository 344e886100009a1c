"""Hosts that join and leave a job while it runs, played by launchers on addresses of their own."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.launch.agents_of_hosts import await_that
from tests.support.hosts import Hosts

pytestmark = pytest.mark.slow

#: Waits until WORLD_SIZE is as large as it is told, for tests of launchers alone.
PLAIN = """
import time

me = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
say("start", *me, os.environ["GROUP_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"])
while me[1] != int(sys.argv[1]):
    time.sleep(0.01)
"""

#: Reduces until WORLD_SIZE is as large as it is told, and the file is there that it is told of, if any;
#: so it has to be started anew to end.
UNTIL = """
import time
import numpy as np
import distdbg as dist

dist.init_process_group()
me = dist.get_rank(), dist.get_world_size()
say("start", *me, os.environ["GROUP_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"])
x = np.ones(4)
while True:
    dist.all_reduce(x)
    if me[1] == int(sys.argv[1]) and all(map(os.path.exists, sys.argv[2:])):
        break
    time.sleep(0.01)
dist.destroy_process_group()
"""


def test_a_host_that_joins_has_all_start_anew_with_new_numbers(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(PLAIN)
        launchers = []
        for n, text in enumerate(("start 0 2 0 0", "start 2 4 1 0", "start 4 6 2 0")):
            flags = [*hosts.elastic("1:3", n), "--nproc-per-node", "2", script, "6"]
            launchers.append(hosts.launch(n, *flags))
            launchers[n].wait_for(text)
        assert [launcher.wait() for launcher in launchers] == [0, 0, 0]
        assert launchers[0].lines("start") == [
            "0 2 0 0", "0 4 0 0", "0 6 0 0", "1 2 0 0", "1 4 0 0", "1 6 0 0",
        ]  # fmt: skip
        assert launchers[2].lines("start") == ["4 6 2 0", "5 6 2 0"]
        assert "1 launcher waits to join; restarting all ranks" in launchers[0].err
        assert len(hosts.run_folders) == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_the_others_go_on_without_a_host_that_goes(tmp_path: Path, signum: int) -> None:
    with Hosts(tmp_path, has_agent=signum == signal.SIGKILL) as hosts:
        # Where the third of them is late, the first start is of two, which must not be the end.
        flags = [hosts.script(UNTIL), "2", str(tmp_path / "go")]
        launchers = [hosts.launch(n, *hosts.elastic("1:3", n), *flags) for n in range(3)]
        for launcher in launchers:
            launcher.wait_for(" 3 ")
        launchers[1].send(signum)
        (tmp_path / "go").touch()
        assert launchers[1].wait() == (143 if signum == signal.SIGTERM else -signal.SIGKILL)
        assert [launchers[0].wait(), launchers[2].wait()] == [0, 0]
        # In the order in which they were written.
        last = [re.findall(r"^start (.*)", launchers[n].out, re.MULTILINE)[-1] for n in (0, 2)]
        assert sorted(last) == ["0 2 0 0", "1 2 1 0"]
        why = ": SIGTERM was received" if signum == signal.SIGTERM else ""
        said = f"is gone{why}; restarting all ranks (0 of 0 restarts used)"
        assert said in launchers[0].err


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_too_few_hosts_end_with_who_is_there(tmp_path: Path, signum: int) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        conf = (
            "keep_alive_interval=0.3,keep_alive_max_attempt=10,join_timeout=5,last_call_timeout=0.2"
        )
        flags = [hosts.script(PLAIN), "9"]
        launchers = [hosts.launch(n, *hosts.elastic("2:3", n, conf=conf), *flags) for n in range(2)]
        for launcher in launchers:
            launcher.wait_for("start", 1)
        launchers[1].send(signum)
        launchers[1].wait()
        assert launchers[0].wait() == 6
        why = ": SIGTERM was received" if signum == signal.SIGTERM else ""
        assert f"is gone{why}; restarting all ranks" in launchers[0].err
        _, _, last = launchers[0].err.partition("RendezvousError: 1 of 2 launchers joined")
        assert "on 127.0.0.2" in last


def test_without_the_launcher_that_serves_the_store_all_end_and_name_it(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(PLAIN)
        launchers = [hosts.launch(n, *hosts.elastic("1:3", n), script, "9") for n in range(3)]
        for launcher in launchers:
            launcher.wait_for(" 3 ", 1)
        launchers[0].send(signal.SIGKILL)
        for launcher in launchers[1:]:
            assert launcher.wait() == 1
            [line] = [x for x in launcher.err.splitlines() if x.startswith("FAILED:")]
            assert f"the launchers' store at {hosts.address(0)}:{hosts.port} is gone" in line
            assert "served by launcher 127.0.0.2-" in line


def test_two_jobs_at_one_endpoint_do_not_mix(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(PLAIN)
        # The store ends with the launcher that serves it, so its job is the longer one.
        long = [hosts.launch(n, *hosts.elastic("2", n, job="a"), script, "2") for n in (0,)]
        short = [hosts.launch(n, *hosts.elastic("2", n, job="b"), script, "2") for n in (1, 2)]
        assert [launcher.wait() for launcher in short] == [0, 0]
        long.append(hosts.launch(3, *hosts.elastic("2", 3, job="a"), script, "2"))
        assert [launcher.wait() for launcher in long] == [0, 0]
        assert len(hosts.run_folders) == 2
        assert sorted(line for one in (*long, *short) for line in one.lines("start")) == [
            "0 2 0 0", "0 2 0 0", "1 2 1 0", "1 2 1 0",
        ]  # fmt: skip


def test_a_launcher_with_another_token_is_told_so(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(PLAIN)
        launcher = hosts.launch(0, *hosts.elastic("1:2", 0), script, "9")
        launcher.wait_for("start")
        other = hosts.launch(1, *hosts.elastic("1:2", 1), script, "9", DISTDBG_TOKEN="another")
        assert other.wait() == 6
        assert "rejects this one: its token is different" in other.err
        assert launcher.process.poll() is None
        launcher.send(signal.SIGINT)
        assert launcher.wait() == 130


SLOW = """
import time
say("slow")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
time.sleep(1)  # whoever is connected by now says who it is
"""


def is_connected(pid: int, port: int) -> bool:
    """Whether a process has a connection to a port of this machine."""
    mine = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            mine.add(os.readlink(entry.path))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        row[2].endswith(f":{port:04X}") and row[3] == "01" and f"socket:[{row[9]}]" in mine
        for row in rows
    )


def test_who_comes_after_the_end_is_told_that_it_is_over(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        quick = hosts.script("say('done')", "quick.py")
        slow = hosts.script(SLOW, "slow.py")
        launchers = [
            hosts.launch(0, *hosts.elastic("2:3", 0), slow, str(tmp_path / "go")),
            hosts.launch(1, *hosts.elastic("2:3", 1), quick),
        ]
        launchers[1].wait_for("done")
        launchers[0].wait_for("slow")
        late = hosts.launch(2, *hosts.elastic("2:3", 2), quick)
        await_that(lambda: is_connected(late.process.pid, hosts.port), "it does not come")
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [0, 0]
        assert late.wait() == 0
        assert "distdbg run: not needed: all ranks succeeded" in late.err
        later = hosts.launch(2, *hosts.elastic("2:3", 2, conf="join_timeout=1"), quick)
        assert later.wait() == 6
        assert f"did not reach {hosts.address(0)}:{hosts.port} within 1." in later.err


def test_too_few_that_came_are_named_when_the_time_is_over(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script("say('never')")
        launchers = [
            hosts.launch(n, *hosts.elastic("3", n, conf=f"join_timeout={limit}"), script)
            for n, limit in enumerate((60, 5))
        ]
        assert launchers[1].wait() == 6
        assert "2 of 3 launchers joined" in launchers[1].err
        for host in range(2):
            assert f"on {hosts.address(host)}\n" in launchers[1].err
        # Others may still come.
        assert launchers[0].process.poll() is None
        launchers[0].send(signal.SIGTERM)
        assert launchers[0].wait() == 143


def test_the_exit_barrier_waits_for_the_ranks_of_other_hosts(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script("import time; time.sleep(3 if os.environ['RANK'] == '1' else 0)")
        launchers = [hosts.launch(n, *hosts.elastic("2", n), script) for n in range(2)]
        assert [launcher.wait() for launcher in launchers] == [0, 0]
        assert "restarting" not in launchers[0].err + launchers[1].err


#: It is two minutes until anybody is taken for dead.
PATIENT = "last_call_timeout=120,keep_alive_interval=5,keep_alive_max_attempt=24"
STUBBORN = """
import signal
if os.environ["DISTDBG_HOST"] == "127.0.0.3" and os.environ["LOCAL_RANK"] == "1":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""


def test_a_host_whose_ranks_end_slowly_says_first_that_it_goes(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        flags = ["--nproc-per-node", "2", "--shutdown-timeout", "3", hosts.script(STUBBORN + UNTIL)]
        # One of the ranks that go is gone at once.
        launchers = [
            hosts.launch(n, *hosts.elastic("1:3", n, conf=PATIENT), *flags, "4") for n in range(3)
        ]
        for launcher in launchers:
            launcher.wait_for(" 6 ", 2)
        launchers[1].send(signal.SIGTERM)
        assert [launcher.wait() for launcher in launchers] == [0, 143, 0]
        for launcher in (launchers[0], launchers[2]):
            assert "restarting all ranks (0 of 0 restarts used)" in launcher.err
