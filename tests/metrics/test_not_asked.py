"""Who asks for no metrics pays for none: nothing of it is loaded, no thread is there, no port is open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from distdbg.client.agent_client import AgentClient
from distdbg.client.live_runs import find_live_runs
from tests.metrics.scraping import await_that
from tests.support.jobs import RunningJob

StartJob = Callable[..., RunningJob]

LOADED = """
import sys
import distdbg.agent.main
ours = ("distdbg.export", "distdbg.agent.metering", "distdbg.export.outlets.exporting")
names = (*ours, "http.server", "prometheus_client")
print([name for name in sys.modules if name.startswith(names)])
"""


def test_an_agent_loads_nothing_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


def test_an_agent_has_neither_threads_nor_a_port_for_it(
    start_job: StartJob, job_folder: Path
) -> None:
    start_job("wait_for('go')\n", ranks=1)
    runs = await_that(
        lambda: [r for r in find_live_runs("", tempdir=str(job_folder)) if r.socket is not None],
        "no agent comes",
    )
    path = runs[0].socket
    assert path is not None
    with AgentClient.at(path) as client:
        about = client.ask("about")
    assert about["metrics"] is None
    pid = about["pid"]
    names = {
        Path(f"/proc/{pid}/task/{task}/comm").read_text()
        for task in os.listdir(f"/proc/{pid}/task")
    }
    assert not [name for name in names if "http" in name or "sending" in name]
    sockets = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed since it was listed
            sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    inodes = {name[8:-1] for name in sockets if name.startswith("socket:")}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    assert not [
        line for table in tables for line in table.splitlines()[1:] if line.split()[9] in inodes
    ]
