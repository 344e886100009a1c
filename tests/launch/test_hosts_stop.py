"""`stop` at the agent of any host ends the job on all of them, also one that goes on without a host."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.client.agent_client import AgentClient
from distdbg.record import folders
from tests.support.hosts import Hosts

pytestmark = pytest.mark.slow

SLEEP = """
import time
say("start", os.environ["WORLD_SIZE"])
time.sleep(600)
"""


def test_a_stop_ends_all_hosts_of_a_job_that_would_go_on_without_one(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        script = hosts.script(SLEEP)
        launchers = [hosts.launch(n, *hosts.elastic("1:3", n), script) for n in range(3)]
        for launcher in launchers:
            launcher.wait_for("start 3")
        [run_folder] = hosts.run_folders
        tempdir = str(hosts.runs.parent)
        path = folders.agent_socket(run_folder.name, hosts.address(2), tempdir)
        deadline = time.monotonic() + 120
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.02)  # nothing announces that an agent listens
        with AgentClient.at(path) as leaf:
            while not leaf.ask("about")["tree"]["is_attached"] and time.monotonic() < deadline:
                time.sleep(0.02)  # they find each other
            assert leaf.ask("stop")["ticket"]
        codes = [launcher.wait() for launcher in launchers]
        # One may see that another has left before it is told itself.
        assert set(codes) <= {143, 1, 6}
        assert 143 in codes
