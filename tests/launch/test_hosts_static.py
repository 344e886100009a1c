"""A fixed set of hosts, played by launchers on addresses of their own."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from distdbg.record import folders
from tests.support.hosts import Hosts

pytestmark = pytest.mark.slow

REDUCE = """
import numpy as np
import distdbg as dist

dist.init_process_group()
x = np.arange(4) + dist.get_rank()
dist.all_reduce(x)
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE"
say("place", *(os.environ[name] for name in names.split()))
say("where", os.environ["DISTDBG_RUN"], os.environ["DISTDBG_HOST"], os.environ["MASTER_ADDR"],
      os.environ["MASTER_PORT"])
say("sum", *x)
dist.destroy_process_group()
"""


def test_ranks_of_two_hosts_are_numbered_and_reduce_together(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        script = hosts.script(REDUCE)
        roles = ("trainer", "reader", "trainer")
        all_three = [
            hosts.launch(
                n, *hosts.static(3, n), "--nproc-per-node", str(nproc), "--role", roles[n], script
            )
            for n, nproc in enumerate((2, 3, 1))
        ]
        assert [launcher.wait() for launcher in all_three] == [0, 0, 0]
        assert [line for launcher in all_three for line in launcher.lines("place")] == [
            "0 6 0 2 0 trainer 0 3",
            "1 6 1 2 0 trainer 1 3",
            "2 6 0 3 1 reader 0 3",
            "3 6 1 3 1 reader 1 3",
            "4 6 2 3 1 reader 2 3",
            "5 6 0 1 2 trainer 2 3",
        ]
        sums = [line for launcher in all_three for line in launcher.lines("sum")]
        assert sums == ["15 21 27 33"] * 6
        [run_folder] = hosts.run_folders
        where = [line for launcher in all_three for line in launcher.lines("where")]
        assert where == [
            f"{run_folder.name} {hosts.address(host)} {hosts.address(0)} {hosts.port}"
            for host in (0, 0, 1, 1, 1, 2)
        ]
        [attempt] = folders.attempts(run_folder)
        assert sorted(p.name for p in attempt.glob("*.ddr")) == [
            folders.record_name(rank) for rank in range(6)
        ]
        assert sorted(p.name for p in (run_folder / folders.LOGS).iterdir()) == [
            hosts.address(n) for n in range(3)
        ]


FAIL_IN_TURN = """
import time
import numpy as np
import distdbg as dist

dist.init_process_group()
say("restarts", os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["MASTER_PORT"])
x = np.ones(4)
dist.all_reduce(x)
if os.environ["TORCHELASTIC_RESTART_COUNT"] in sys.argv[1].split(",") and os.environ["RANK"] == sys.argv[2]:
    os._exit(7)
dist.all_reduce(x)
dist.destroy_process_group()
"""


def test_a_failure_on_one_host_restarts_all(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(FAIL_IN_TURN)
        flags = ["--nproc-per-node", "2", "--max-restarts", "2", script, "0", "3"]
        both = [hosts.launch(n, *hosts.static(2, n), *flags) for n in range(2)]
        assert [launcher.wait() for launcher in both] == [0, 0]
        for launcher in both:
            assert launcher.lines("restarts") == [f"{count} {hosts.port}" for count in (0, 0, 1, 1)]
            assert "restarting all ranks (attempt 2 of 3)" in launcher.err
        first = (
            "attempt 1 of 3: FAILED: rank 3 on host 127.0.0.3 failed first: it exited with code 7"
        )
        assert first in both[0].err
        assert "attempt 1 of 3: FAILED: rank 3 exited with code 7" in both[1].err
        [run_folder] = hosts.run_folders
        assert len(folders.attempts(run_folder)) == 2


#: With rank 0, the launcher that serves the others is gone as soon as it has said what failed.
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_every_launcher_names_the_rank_that_failed_first(tmp_path: Path, rank: int) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(FAIL_IN_TURN)
        flags = ["--max-restarts", "1", script, "0,1", str(rank)]
        both = [hosts.launch(n, *hosts.static(2, n), *flags) for n in range(2)]
        assert [launcher.wait() for launcher in both] == [7, 7]
        there, other = both[rank], both[1 - rank]
        assert f"FAILED: rank {rank} exited with code 7 (host {there.host}" in there.err
        first = f"FAILED: rank {rank} on host {there.host} failed first: it exited with code 7"
        assert first in other.err
        for launcher in both:
            assert "restarts used: 1 of 1" in launcher.err


def test_a_place_that_is_taken_is_refused_and_the_job_goes_on(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script("import time; time.sleep(1)")
        first = hosts.launch(0, *hosts.static(3, 0), script)
        taken = [hosts.launch(n, *hosts.static(3, 1), script) for n in (1, 2)]
        deadline = time.monotonic() + 120
        while all(one.process.poll() is None for one in taken) and time.monotonic() < deadline:
            time.sleep(0.02)  # whichever of them comes second
        [refused] = [one for one in taken if one.process.poll() is not None]
        assert refused.wait() == 2
        assert "--node-rank 1 is taken by launcher 127.0.0." in refused.err
        taken.remove(refused)
        last = hosts.launch(3, *hosts.static(3, 2), script)
        assert [launcher.wait() for launcher in (first, *taken, last)] == [0, 0, 0]


def test_a_launcher_that_cannot_be_replaced_ends_the_job(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script("import time; say('here'); time.sleep(600)")
        conf = ["--rdzv-conf", "keep_alive_interval=0.3,keep_alive_max_attempt=10"]
        both = [hosts.launch(n, *hosts.static(2, n), *conf, script) for n in range(2)]
        for launcher in both:
            launcher.wait_for("here")
        both[1].send(signal.SIGKILL)
        assert both[0].wait() == 1
        assert "FAILED: launcher 127.0.0.3-" in both[0].err
        assert "is gone; 1 rank of this host was terminated" in both[0].err


def test_a_port_in_use_names_the_process(tmp_path: Path) -> None:
    with (
        Hosts(tmp_path, has_agent=False) as hosts,
        socket.create_server((hosts.address(0), hosts.port)),
    ):
        launcher = hosts.launch(0, *hosts.static(2, 0), hosts.script("say('never')"))
        assert launcher.wait() == 6
        assert (
            f"the first launcher cannot wait for the others at {hosts.address(0)}" in launcher.err
        )
        assert f"pid {os.getpid()}" in launcher.err


def test_two_jobs_of_one_host_do_not_meet(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(REDUCE)
        flags = ["--standalone", "--nproc-per-node", "2", script]
        both = [hosts.launch(0, *flags) for _ in range(2)]
        assert [launcher.wait() for launcher in both] == [0, 0]
        for launcher in both:
            assert launcher.lines("sum") == ["1 3 5 7"] * 2
        assert len(hosts.run_folders) == 2


GLOO = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(4) * (dist.get_rank() + 1)
dist.all_reduce(x)
say("sum", *x.tolist(), os.environ["MASTER_PORT"])
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_ranks_of_two_hosts_reduce_with_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(GLOO)
        # In containers, a host's name may have an address that gloo cannot use.
        both = [
            hosts.launch(n, *hosts.static(2, n), script, GLOO_SOCKET_IFNAME="lo") for n in range(2)
        ]
        assert [launcher.wait() for launcher in both] == [0, 0]
        for launcher in both:
            assert launcher.lines("sum") == [f"3.0 3.0 3.0 3.0 {hosts.port}"]


LEAVE = """
import time
import numpy as np
import distdbg as dist

dist.init_process_group()
x = np.ones(4)
dist.all_reduce(x)
if os.environ["RANK"] == "0":
    os._exit(0)
if os.environ["LOCAL_RANK"] == "1":
    time.sleep(600)
dist.all_reduce(x)
"""


def test_a_rank_that_ends_too_early_is_found_on_another_host(tmp_path: Path) -> None:
    with Hosts(tmp_path, has_agent=False) as hosts:
        script = hosts.script(LEAVE)
        flags = [[*hosts.static(2, n), "--nproc-per-node", str(2 - n), script] for n in range(2)]
        both = [hosts.launch(n, *flags[n]) for n in range(2)]
        assert [launcher.wait() for launcher in both] == [1, 1]
        assert "RANK DIED: rank 2 raised PeerLost: rank 0 " in both[1].err
        assert "rank 0 was on host 127.0.0.2; see the output of the launcher there" in both[1].err
        assert (
            "FAILED: rank 2 on host 127.0.0.3 failed first: it raised PeerLost: rank 0 "
        ) in both[0].err
