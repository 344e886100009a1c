"""Ranks started by torchrun, whose own store holds the port that it names."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)

JOB = """
import os
import distdbg as dist
for _ in range(2):
    dist.init_process_group()
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, int(os.environ["LOCAL_RANK"]))
    print(f"rank {dist.get_rank()} sees {gathered}\\n", end="", flush=True)
    dist.destroy_process_group()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == os.environ["FAILS"]:
    raise SystemExit(3)
"""


Torchrun = Callable[..., str]


@pytest.fixture
def torchrun(warm_python: WarmPython, tmp_path: Path) -> Torchrun:
    return partial(run_torchrun, warm_python, tmp_path)


def run_torchrun(
    warm_python: WarmPython, tmp_path: Path, *options: str, fails: str = "", **variables: str
) -> str:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    path = os.pathsep.join(entry for entry in [os.getcwd(), *sys.path] if entry)
    # torchrun takes its rank from the environment where there is one.
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "MASTER_"))}
    done = warm_python.run(
        ["-m", "torch.distributed.run", *options, str(script)],
        env=environ | {"PYTHONPATH": path, "FAILS": fails, "OMP_NUM_THREADS": "1"} | variables,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--standalone"], []], ids=["standalone", "static"])
def test_ranks_of_torchrun_meet_without_its_port(torchrun: Torchrun, options: list[str]) -> None:
    output = torchrun(*options, "--nproc-per-node=2")
    for rank in range(2):
        assert output.count(f"rank {rank} sees [0, 1]") == 2


@pytest.mark.slow
def test_ranks_that_torchrun_started_again_meet_again(torchrun: Torchrun) -> None:
    options = ["--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    output = torchrun(*options, fails="0")
    assert output.count("rank 0 sees [0, 1]") == 4


@pytest.mark.slow
def test_the_agent_does_not_keep_torchrun_from_ending(tmp_path: Path, torchrun: Torchrun) -> None:
    options = ["--standalone", "--nproc-per-node=2"]
    # Its output is a pipe that is read to the end: whoever holds it holds this.
    torchrun(*options, DISTDBG_AGENT="1", TMPDIR=str(tmp_path))
    logs = list(tmp_path.glob("distdbg-*/2*/agent-*.log"))
    assert len(logs) == 2, "one for each time that the ranks met"
    deadline = time.monotonic() + 120
    while list(tmp_path.glob("distdbg-*/.agents/*.sock")) and time.monotonic() < deadline:
        time.sleep(0.02)  # they leave by themselves
    assert not list(tmp_path.glob("distdbg-*/.agents/*.sock"))


def test_lines_on_torchruns_stdin_are_typed_at_a_breakpoint(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import distdbg as dist\n"
        "dist.init_process_group()\n"
        "x = 40 + dist.get_rank()\n"
        "dist.breakpoint(rank=1)\n"
        "print(f'x is {x}\\n', end='', flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    path = os.pathsep.join(entry for entry in [os.getcwd(), *sys.path] if entry)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            script,
        ],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        input="p x\nx = 7\ncontinue\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "(Pdb) p x\n41\n(Pdb) x = 7\n(Pdb) continue\n" in done.stdout
    assert sorted(re.findall(r"x is (\d+)", done.stdout)) == ["40", "7"]
