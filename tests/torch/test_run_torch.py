"""Scripts written for torchrun, unchanged under `distdbg run`."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.jobs import Done, running

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.ranks,
    pytest.mark.slow,
]

DDP = """
import json
import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel


@record
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(3):
        batch = torch.full((2, 4), float(dist.get_rank() + step))
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = [weight.tolist() for weight in model.parameters()]
    facts = [dist.get_rank(), dist.get_world_size(), dist.is_torchelastic_launched(), weights]
    print(json.dumps(facts) + "\\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # torch's threads sometimes end the process by SIGABRT while the interpreter ends.
    os._exit(0)
"""
BOTH = """
import json
import numpy as np
import torch
import torch.distributed as theirs
import distdbg as ours

ours.init_process_group()
theirs.init_process_group("gloo")
a = torch.ones(3)
theirs.all_reduce(a)
b = np.ones(3)
ours.all_reduce(b)
launched = ours.is_torchelastic_launched(), theirs.is_torchelastic_launched()
print(json.dumps([ours.get_rank(), theirs.get_rank(), a.tolist(), b.tolist(), *launched]) + "\\n", end="")
theirs.destroy_process_group()
ours.destroy_process_group()
"""
FAILS = """
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise ValueError("no data")
    dist.barrier()

main()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="job-"))
    yield made
    shutil.rmtree(made)


def run(folder: Path, script: str, *flags: str) -> Done:
    path = folder / "train.py"
    path.write_text(script)
    with running(["--nproc-per-node=2", *flags, str(path)], folder) as job:
        done = job.wait(240.0)
        left = [
            line
            for line in job.leftovers()
            if not line.endswith("train.py") and "/torchinductor_" not in line
        ]
        assert left == []
    return done


def test_a_ddp_script_says_the_same_as_under_torchrun(
    folder: Path, warm_python: WarmPython
) -> None:
    ours = run(folder, DDP)
    assert ours.code == 0, ours.err
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    theirs = warm_python.run([*command, str(folder / "train.py")])
    assert theirs.returncode == 0, theirs.stderr
    assert sorted(ours.out.splitlines()) == sorted(theirs.stdout.splitlines())
    first = json.loads(min(ours.out.splitlines()))
    assert first[:3] == [0, 2, True]


def test_torch_and_distdbg_work_in_the_same_ranks(folder: Path) -> None:
    done = run(folder, BOTH)
    assert done.code == 0, done.err
    assert sorted(json.loads(line) for line in done.out.splitlines()) == [
        [rank, rank, [2.0] * 3, [2.0] * 3, True, True] for rank in range(2)
    ]


def test_torch_ranks_start_anew_and_fail_with_torchs_error_file(folder: Path) -> None:
    done = run(folder, FAILS, "--max-restarts=1", "--shutdown-timeout=5")
    assert done.code == 1
    assert done.report[0].startswith("FAILED: rank 1 raised ValueError: no data"), done.err
    assert "  restarts used: 1 of 1" in done.report
    assert any("error file: " in line for line in done.report)
