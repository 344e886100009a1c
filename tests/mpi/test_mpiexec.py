"""Ranks started by the launchers of the MPI wheels, which tell who they are in their own way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

JOB = """
import os
import distdbg as dist
for _ in range(2):
    dist.init_process_group()
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, dist.get_rank())
    print(f"rank {dist.get_rank()} sees {gathered}\\n", end="", flush=True)
    dist.destroy_process_group()
"""


def find_launcher(package: str, names: Sequence[str]) -> Path:
    # Both wheels bring an `mpiexec`, and the one installed last wins: these names are theirs alone.
    try:
        installed = files(package) or []
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    for file in installed:
        if file.name in names and file.parent.name == "bin":
            return Path(str(file.locate())).resolve()
    pytest.skip(f"{', '.join(names)} of {package} is missing")


def run_job(tmp_path: Path, command: list[str], **variables: str) -> str:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    path = os.pathsep.join(entry for entry in [os.getcwd(), *sys.path] if entry)
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [*command, sys.executable, str(script)],
        env=os.environ | allowed | {"PYTHONPATH": path} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_all_met(output: str, world_size: int) -> None:
    for rank in range(world_size):
        assert output.count(f"rank {rank} sees {list(range(world_size))}") == 2


def test_ranks_of_mpich_meet(tmp_path: Path) -> None:
    launcher = find_launcher("mpich", ["mpiexec.hydra"])
    assert_all_met(run_job(tmp_path, [str(launcher), "-n", "3"]), 3)


def test_two_jobs_of_mpich_at_once_do_not_mix(tmp_path: Path) -> None:
    launcher = find_launcher("mpich", ["mpiexec.hydra"])
    # Each job has two ranks of the other job's host, user and program beside it.
    both = f"'{launcher}' -n 2 \"$@\" & '{launcher}' -n 2 \"$@\"; wait $!"
    output = run_job(tmp_path, ["sh", "-c", both, "sh"])
    for rank in range(2):
        assert output.count(f"rank {rank} sees [0, 1]") == 4


def test_a_shell_between_mpich_and_the_rank_does_not_matter(tmp_path: Path) -> None:
    launcher = find_launcher("mpich", ["mpiexec.hydra"])
    assert_all_met(run_job(tmp_path, [str(launcher), "-n", "2", "sh", "-c", '"$@"; true', "sh"]), 2)


def test_ranks_of_open_mpi_meet(tmp_path: Path) -> None:
    launcher = find_launcher("openmpi", ["prterun"])
    options = ["--personality", "ompi", "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]
    assert_all_met(run_job(tmp_path, [str(launcher), *options, "-n", "3"]), 3)


@pytest.mark.parametrize("library", ["mpich", "openmpi"])
def test_the_agent_does_not_keep_the_launcher_from_ending(tmp_path: Path, library: str) -> None:
    if library == "mpich":
        command = [str(find_launcher("mpich", ["mpiexec.hydra"]))]
    else:
        launcher = find_launcher("openmpi", ["prterun"])
        options = ["--personality", "ompi", "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]
        command = [str(launcher), *options]
    # Its output is a pipe that is read to the end: whoever holds it holds this.
    output = run_job(tmp_path, [*command, "-n", "2"], DISTDBG_AGENT="1", TMPDIR=str(tmp_path))
    assert_all_met(output, 2)
    logs = list(tmp_path.glob("distdbg-*/2*/agent-*.log"))
    assert len(logs) == 2, "one for each time that the ranks met"
    deadline = time.monotonic() + 120
    while list(tmp_path.glob("distdbg-*/.agents/*.sock")) and time.monotonic() < deadline:
        time.sleep(0.02)  # they leave by themselves
    assert not list(tmp_path.glob("distdbg-*/.agents/*.sock"))
