"""The first rank of a host starts the agent, and the agent holds nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_agent_is_no_child_of_a_rank_and_holds_nothing_of_it(
    start_job: Callable[..., Any],
) -> None:
    job = start_job("time.sleep(600)\n", is_forked=False)
    with job.connect() as client:
        agent = client.hello["pid"]
        ranks = {process.pid for process in job.processes}
        status = Path(f"/proc/{agent}/status").read_text()
        parent = int(status.split("PPid:")[1].split()[0])
        assert parent not in ranks
        assert os.getsid(agent) not in ranks
        assert os.readlink(f"/proc/{agent}/cwd") == "/"
        held = []
        for fd in os.listdir(f"/proc/{agent}/fd"):
            with suppress(OSError):  # of the moment
                held.append(os.readlink(f"/proc/{agent}/fd/{fd}"))
        assert not [name for name in held if name.endswith(".out") or "store" in name], held
        children = Path(f"/proc/{job.processes[0].pid}/task/{job.processes[0].pid}/children")
        assert children.read_text() == ""


def test_no_agent_where_none_is_wanted(start_job: Callable[..., Any]) -> None:
    job = start_job("print('begun', flush=True)\ntime.sleep(600)\n", DISTDBG_AGENT="0")
    deadline = time.monotonic() + 120
    while "begun" not in job.output(0) and time.monotonic() < deadline:
        time.sleep(0.02)  # a rank says nothing but in its output
    assert "begun" in job.output(0)
    assert not list(job.run_folder.glob("agent-*"))


@pytest.mark.slow
def test_ranks_of_spawn_have_an_agent(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "import distdbg as dist\n"
        "def main(index):\n"
        "    dist.init_process_group()\n"
        "    dist.barrier()\n"
        "    dist.destroy_process_group()\n"
        "if __name__ == '__main__':\n"
        "    dist.spawn(main, nprocs=2)\n"
    )
    assert_one_agent(tmp_path, [sys.executable, str(program)])


@pytest.mark.slow
def test_ranks_of_srun_have_an_agent(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "import distdbg as dist\n"
        "dist.init_process_group()\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
    )
    # What srun sets on one host; tasks are its word for ranks.
    step = {
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": os.uname().nodename,
        "SLURM_STEP_TASKS_PER_NODE": "2",
    }
    start = 'for n in 0 1; do SLURM_PROCID=$n SLURM_LOCALID=$n "$@" & done; wait'
    assert_one_agent(tmp_path, ["sh", "-c", start, "sh", sys.executable, str(program)], **step)


def assert_one_agent(tmp_path: Path, command: list[str], **variables: str) -> None:
    """Run a job whose output is a pipe: it is at its end when the job is, though the agent lives."""
    environ = dict(os.environ) | {
        "DISTDBG_AGENT": "1",
        "DISTDBG_TOKEN": "of this test",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path),
        **variables,
    }
    done = subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()
    logs = list(tmp_path.glob("distdbg-*/2*/agent-*.log"))
    assert len(logs) == 1, logs
    deadline = time.monotonic() + 120
    while (left := find_agents(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.02)  # it leaves by itself
    assert not left
    assert logs[0].read_text() == ""


def find_agents(folder: Path) -> list[int]:
    """The agents whose run is in this folder."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                if b"distdbg.agent" in words and os.fsencode(folder) in b" ".join(words):
                    found.append(int(name))
    return found


def test_killed_ranks_leave_no_sockets_of_their_debuggers(start_job: Callable[..., Any]) -> None:
    # They sleep until they are killed.
    job = start_job("dist.barrier()\ntime.sleep(600)\n", is_forked=False, DISTDBG_DEBUGGABLE="1")

    def left() -> list[Path]:
        return list(job.run_folder.glob("debug-rank*.sock"))

    with job.connect():
        deadline = time.monotonic() + 120
        while len(left()) < len(job.processes) and time.monotonic() < deadline:
            time.sleep(0.02)  # nothing announces them
    assert len(left()) == len(job.processes)
    for process in job.processes:
        process.kill()
    job.await_no_agent()
    assert left() == []
