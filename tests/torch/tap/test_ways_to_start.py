"""A watched job however its processes start; torch's breakpoint and a proven deadlock in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.record.reader import read_record
from distdbg.torch_bridge.__main__ import main

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
    assert sys.argv[1:] == ["an argument"]
    multiprocessing.set_forkserver_preload(["torch.distributed"])
    for way in ("fork", "forkserver"):
        torch.multiprocessing.start_processes(train, args=(way,), nprocs=2, start_method=way)
    # Each brings a torch of its own, so they share a job. As Slurm starts ranks: a plain interpreter.
    assert os.environ["DISTDBG_TORCH"] == "1"
    spawned = torch.multiprocessing.start_processes(
        train, args=("anew",), nprocs=1, join=False, start_method="spawn"
    )
    plain = subprocess.Popen([sys.executable, "-c", "import train; train.train(1, 'anew')"])
    assert plain.wait(100) == 0
    while not spawned.join(100):
        pass
"""


def job(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def environment(tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([os.getcwd(), str(tmp_path)])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "DISTDBG_TORCH": "1"}


def test_ranks_of_every_way_to_start_them_are_watched(tmp_path: Path) -> None:
    """The program is run by our module, which tells the processes that it starts by the variable."""
    script = job(tmp_path, "train.py", STARTS_RANKS)
    done = subprocess.run(
        [sys.executable, "-m", "distdbg.torch_bridge", script, "an argument"],
        cwd=tmp_path,
        env=environment(tmp_path) | {"DISTDBG_AGENT": "0", "DISTDBG_TORCH": ""},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "distdbg" not in done.stderr
    for way in ("fork", "forkserver", "anew"):
        records = sorted((tmp_path / f"run-{way}").glob("*.ddr"))
        assert len(records) == 2, way
        for path in records:
            ops = [op for op in read_record(path).ops if not op.is_aside]
            assert [op.form.kind for op in ops if op.form is not None] == ["all_reduce"]


def test_our_module_without_a_program_says_how_to_use_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert [main([]), main(["-m"]), main(["--help"])] == [2, 2, 0]
    assert capsys.readouterr().err.count("usage: python -m distdbg.torch_bridge") == 3


STOPS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = 40 + dist.get_rank()
dist.breakpoint(rank=1)
y = torch.ones(2)
dist.all_reduce(y)
print(f"x is {x}, y is {y[0]:.0f}\\n", end="", flush=True)
if dist.get_rank() == 0:
    dist.all_reduce(y)
else:
    dist.recv(torch.ones(4), 0)
"""


def test_torchs_breakpoint_stops_a_watched_rank_and_ranks_in_unlike_ops_are_ended(
    tmp_path: Path,
) -> None:
    """One job: to start it costs more than all that happens in it."""
    script = job(tmp_path, "stops.py", STOPS)
    done = subprocess.run(
        [*(sys.executable, "-m", "distdbg", "run", "--nproc-per-node=2"), script],
        env=environment(tmp_path) | {"DISTDBG_TORCH": "", "DISTDBG_AGENT": "1"},
        input="p x\nx = 7\ncontinue\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "p x\n41\n" in done.stdout.replace("(Pdb) ", ""), done.stdout + done.stderr
    assert "x is 7, y is 2" in done.stdout
    assert "x is 40, y is 2" in done.stdout
    assert done.returncode != 0
    assert "DEADLOCK: ranks 0-1 are deadlocked" in done.stdout + done.stderr
