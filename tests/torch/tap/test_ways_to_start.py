"""A watched job however its processes start; torch's breakpoint and a proven deadlock in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.record.reader import read_record

pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

#: torch is imported once for forked and forkserver's ranks; the others bring their own.
STARTS_RANKS = """
import multiprocessing, os, subprocess, sys
import torch, torch.distributed as dist

def train(rank, way):
    os.environ["DISTDBG_RUN_DIR"] = f"run-{way}"
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store-{way}", rank=rank, world_size=2)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [2.0] * 3
    dist.destroy_process_group()

if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["torch.distributed"])
    for way in ("fork", "forkserver", "spawn"):
        torch.multiprocessing.start_processes(train, args=(way,), nprocs=2, start_method=way)
    # As Slurm starts them: plain interpreters, one rank each.
    words = [f"import train; train.train({rank}, 'plain')" for rank in range(2)]
    ranks = [subprocess.Popen([sys.executable, "-c", each]) for each in words]
    assert [rank.wait(60) for rank in ranks] == [0, 0]
"""


def job(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def environment(tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([os.getcwd(), str(tmp_path)])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "DISTDBG_TORCH": "1"}


def test_ranks_of_every_way_to_start_them_are_watched(tmp_path: Path) -> None:
    script = job(tmp_path, "train.py", STARTS_RANKS)
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=environment(tmp_path) | {"DISTDBG_AGENT": "0"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "distdbg" not in done.stderr
    for way in ("fork", "forkserver", "spawn", "plain"):
        records = sorted((tmp_path / f"run-{way}").glob("*.ddr"))
        assert len(records) == 2, way
        for path in records:
            ops = [op for op in read_record(path).ops if not op.is_aside]
            assert [op.form.kind for op in ops if op.form is not None] == ["all_reduce"]


STOPS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = 40 + dist.get_rank()
dist.breakpoint(rank=1)
y = torch.ones(2)
dist.all_reduce(y)
print(f"x is {x}, y is {y[0]:.0f}\\n", end="", flush=True)
dist.destroy_process_group()
"""


def launch(tmp_path: Path, script: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*(sys.executable, "-m", "distdbg", "run", "--torch", "--nproc-per-node=2"), script],
        env=environment(tmp_path) | {"DISTDBG_TORCH": "", "DISTDBG_AGENT": "1"},
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_torchs_breakpoint_stops_any_rank_of_a_watched_job(tmp_path: Path) -> None:
    done = launch(tmp_path, job(tmp_path, "stops.py", STOPS), "p x\nx = 7\ncontinue\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "p x\n41\n" in done.stdout.replace("(Pdb) ", "")
    assert "x is 7, y is 2" in done.stdout
    assert "x is 40, y is 2" in done.stdout


BOTH_RECEIVE = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.recv(torch.ones(4), 1 - dist.get_rank())
"""


def test_ranks_that_both_wait_in_a_recv_are_told_and_ended(tmp_path: Path) -> None:
    done = launch(tmp_path, job(tmp_path, "both.py", BOTH_RECEIVE))
    assert done.returncode != 0
    assert "DEADLOCK: ranks 0-1 are deadlocked" in done.stdout + done.stderr
