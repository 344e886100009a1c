"""One watched job of torch, from its start to its export, through the commands as a user types them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs import RunningJob, running

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.ranks,
    pytest.mark.slow,
]

#: Trains until rank 0 finds a file.
TRAINS = """
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step, is_over = 0, torch.zeros(1)
while not is_over:
    loss = model(torch.ones(2, 4)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    is_over += os.path.exists(sys.argv[1])
    dist.broadcast(is_over, 0)
dist.destroy_process_group()
# torch's threads sometimes end the process by SIGABRT while the interpreter ends.
os._exit(0)
"""
FAILS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 1:
    value = 41
    raise ValueError("no data")
dist.barrier()
"""
#: Two ranks import torch beside a command that starts.
PATIENCE_S = 120.0
BUCKET = "DDP bucket 0: bias to weight"
CALLED_AT = "train.py:17 (<module>)"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="job-") as made:
        yield Path(made)


def distdbg(folder: Path, *words: str, typed: str = "") -> str:
    """What a command prints."""
    done = run_command(folder, *words, typed=typed)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_command(folder: Path, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distdbg", *words],
        env={**os.environ, "TMPDIR": str(folder)},
        input=typed,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def until_stopped(job: RunningJob) -> None:
    def is_stopped() -> bool:
        return "in the debugger" in run_command(job.folder, "ps").stdout

    job.until(is_stopped, "a rank stopped", PATIENCE_S)


def test_a_job_of_torch_is_shown_stopped_measured_and_exported(folder: Path) -> None:
    script, stop = folder / "train.py", folder / "stop"
    script.write_text(TRAINS)
    words = ["--nproc-per-node=2", str(script), str(stop)]
    with running(words, folder, has_agent=True) as job:
        # There may be no job yet that the command finds.
        top = "top", "--once", "--view", "ops"
        job.until(lambda: "broadcast" in run_command(folder, *top).stdout, "an op", PATIENCE_S)
        distdbg(folder, "break", "rank=1,kind=all_reduce")
        until_stopped(job)

        def is_shown() -> bool:  # the agent looks now and then
            shown = json.loads(distdbg(folder, "ps", "--json"))["runs"][0]["ranks"][1]
            return (shown["state"], shown["site"]) == ("in the debugger", CALLED_AT)

        job.until(is_shown, "rank 1 in the debugger", PATIENCE_S)
        ranks = distdbg(folder, "top", "--once", "--size", "160x24", "--view", "ranks")
        assert "1 in the debugger" in ranks
        assert BUCKET in distdbg(folder, "ps")  # what the other rank waits in
        reported = json.loads(distdbg(folder, "exec", "--rank", "1", "step > 0 and rank", "--json"))
        assert "1" in json.dumps(reported)
        assert "-> loss.backward()" in distdbg(folder, "attach", typed="p rank\ndetach\n")
        assert "distdbg_" in distdbg(folder, "exporter", "--once", "-")
        distdbg(folder, "break", "--clear", "all")
        distdbg(folder, "break", "--continue", "all")
        stop.touch()
        done = job.wait(PATIENCE_S)
        assert done.code == 0, done.err
        assert "no debugger can attach" not in done.out + done.err
        # All ops have their ends, also those that a rule looked at.
        assert "no fault found in 2 ranks" in distdbg(folder, "analyze")
        assert CALLED_AT in distdbg(folder, "record")
        trace = folder / "trace.json"
        distdbg(folder, "export", "--to", "chrome", "--output", str(trace))
        assert BUCKET in trace.read_text()


def test_a_rank_of_torch_is_held_where_it_fails(folder: Path) -> None:
    script = folder / "train.py"
    script.write_text(FAILS)
    words = ["--nproc-per-node=2", "--debug-on-error", str(script)]
    with running(words, folder, has_agent=True) as job:
        until_stopped(job)
        reported = distdbg(folder, "exec", "--rank", "1", "value")
        assert "41" in reported
        assert "rank 1 goes on" in run_command(folder, "break", "--continue", "all").stderr
        done = job.wait(PATIENCE_S)
        assert done.code != 0
        assert "ValueError: no data" in done.err
