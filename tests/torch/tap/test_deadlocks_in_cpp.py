"""A rank that waits in C++, where no Python says so, is part of a deadlock that is proven."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.torch.tap.test_ways_to_start import environment, job

pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

HEAD = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(4)
"""
DDP = f"""{HEAD}
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
if dist.get_rank() == 0:
    model(x).sum().backward()
else:
    dist.recv(x, 0)
"""
FUNCTIONAL = f"""{HEAD}
from torch.distributed import _functional_collectives as functional
if dist.get_rank() == 0:
    print(functional.all_reduce(x, "sum", dist.group.WORLD).sum())
else:
    dist.recv(x, 0)
"""


@pytest.mark.parametrize(
    ("script", "op", "level"),
    [(DDP, "all_reduce #4", "info"), (FUNCTIONAL, "all_reduce #1", "detail")],
    ids=["ddp", "functional"],
)
def test_a_deadlock_is_proven_though_one_rank_waits_in_cpp(
    script: str, op: str, level: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "distdbg", "run", "--nproc-per-node=2"),
            job(tmp_path, "waits.py", script),
        ],
        env=environment(tmp_path)
        | {"DISTDBG_TORCH": "", "DISTDBG_AGENT": "1", "DISTDBG_DEBUG": level},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,  # the limit of torch's own ops is half an hour
        check=False,
    )
    assert done.returncode != 0
    assert "DEADLOCK: ranks 0-1 are deadlocked (cycle of 2 ranks): " in done.stderr
    assert f"rank 0 in {op} on group 'world', rank 1 in recv from rank 0" in done.stderr
