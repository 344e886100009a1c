"""A deadlock across hosts: the root's agent proves it of what the others tell, and ends it on all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from distdbg.record import folders
from tests.launch.agents_of_hosts import agent_of, await_that
from tests.support.hosts import Hosts

pytestmark = pytest.mark.slow

#: Ranks 1 and 2 are on different hosts.
CYCLE = """
import time
import numpy as np
import distdbg as dist

dist.init_process_group()
x = np.ones(4)
dist.all_reduce(x)
rank = dist.get_rank()
work = dist.all_reduce(x, async_op=True)
if rank != 3:
    work.wait()
del work
say("ready")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
say("blocked", time.monotonic())
try:
    if rank in (1, 2):
        dist.recv(x, src=3 - rank)
    dist.barrier()
except dist.DistError as error:
    say("raised", time.monotonic(), type(error).__name__, error.what)
    raise
"""


def is_leak_known(root: Any) -> bool:
    """What the rank has found itself goes to the root while the job runs."""
    verdict = root.ask("verdict")["verdict"] or {"findings": []}
    return any((one["kind"], one["ranks"]) == ("leaked work", [3]) for one in verdict["findings"])


def test_a_deadlock_of_ranks_on_two_hosts_is_proven_and_ended(tmp_path: Path) -> None:
    number = 3  # one of them has no part in it
    with Hosts(tmp_path) as hosts:
        script = hosts.script(CYCLE)
        flags = ["--nproc-per-node", "2", script, str(tmp_path / "go")]
        launchers = [hosts.launch(n, *hosts.static(number, n), *flags) for n in range(number)]
        for launcher in launchers:
            launcher.wait_for("ready", 2)
        with agent_of(hosts, 0) as root:
            await_that(lambda: len(root.ask("ranks")["ranks"]) == 2 * number, "agents do not meet")
            await_that(lambda: is_leak_known(root), "the root does not hear what rank 3 leaks")
        (tmp_path / "go").touch()
        assert [launcher.wait() for launcher in launchers] == [1] * number
        blocked, raised = [], []
        for launcher in launchers:
            blocked += [float(line) for line in launcher.lines("blocked")]
            for line in launcher.lines("raised"):
                at, kind, words = line.split(" ", 2)
                assert kind == "JobAborted", line
                assert "the job was aborted by the agent: ranks 1-2 are deadlocked" in words
                raised.append(float(at))
            assert launcher.err.count("DEADLOCK: ranks 1-2 are deadlocked") == 1
        assert len(raised) == 2 * number
        assert max(raised) - max(blocked) < 30  # and not after the timeout of the op
        said = [
            len(re.findall("^distdbg: DEADLOCK on ranks 1-2: ", launcher.err, re.MULTILINE))
            for launcher in launchers
        ]
        assert said == [1] + [0] * (number - 1)
        [run_folder] = hosts.run_folders
        [attempt] = folders.attempts(run_folder)
        verdict = json.loads((attempt / "verdict.json").read_text())
        root_cause = verdict["findings"][verdict["verdict"]["root"]]
        assert (root_cause["kind"], root_cause["ranks"]) == ("deadlock", [1, 2])
