"""What torch's own recorder writes, on gloo, is read and diagnosed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.load.open import open_paths
from distdbg.diagnose.verdict import diagnose

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = pytest.mark.torch

PROGRAM = """
import datetime, os, sys
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d
rank, world, how, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
    timeout=datetime.timedelta(seconds=60),
)
group = dist.new_group([0, 1], group_desc="pair")
dist.all_reduce(torch.ones(4))
dist.broadcast(torch.ones(2, 2), 0)
if rank < 2:
    dist.all_gather([torch.zeros(3) for _ in range(2)], torch.ones(3), group=group)
dist.all_to_all_single(torch.zeros(world), torch.ones(world))
dist.barrier()
# Now that all have met: what follows is never completed.
dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=1.5))
try:
    if how == "missing" and rank != 1:
        dist.all_reduce(torch.ones(4))
    if how == "mismatch":
        dist.all_reduce(torch.ones(4)) if rank != 1 else dist.barrier()
except RuntimeError as error:
    print(error)
c10d = torch._C._distributed_c10d
with open(f"{folder}/dumps/trace_rank_{rank}", "wb") as file:
    file.write(c10d._dump_fr_trace())
with open(f"{folder}/json/trace_rank_{rank}.json", "wb") as file:
    file.write(c10d._dump_fr_trace_json())
with open(f"{folder}/dumps/done_{rank}.txt", "w") as file:
    file.write("")
os._exit(0)
"""


@pytest.fixture(scope="module", params=["well", "missing", "mismatch"])
def job(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    warm_python: WarmPython,
) -> tuple[str, Path]:
    """How it went, and the folder with what torch wrote."""
    folder = tmp_path_factory.mktemp(request.param)
    run(warm_python, folder, request.param, world=3)
    return request.param, folder


def run(warm_python: WarmPython, folder: Path, how: str, world: int) -> None:
    (folder / "dumps").mkdir()
    (folder / "json").mkdir()
    (folder / "train.py").write_text(PROGRAM)
    processes = [
        warm_python.start(
            [str(folder / "train.py"), str(rank), str(world), how, str(folder)],
            stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]
    try:
        for process in processes:
            _, error = process.communicate(timeout=120)
            assert process.returncode == 0, error.decode()
    finally:
        for process in processes:
            process.close()


@pytest.mark.slow
@pytest.mark.parametrize("which", ["dumps", "json"])
def test_dumps_of_gloo_are_diagnosed(job: tuple[str, Path], which: str) -> None:
    how, folder = job
    (session,) = open_paths([folder / which])
    verdict = diagnose(session)
    assert session.format == "torch flight recorder"
    assert sorted(session.ranks) == [0, 1, 2]
    assert {group.label for group in session.groups} == {"world", "pair"}
    if how == "well":
        assert verdict.findings == ()
        return
    assert verdict.root is not None
    assert verdict.root.ranks == (1,)
    assert verdict.root.seq == 5
    assert verdict.root.kind is (
        FindingKind.MISMATCH if how == "mismatch" else FindingKind.MISSING_RANK
    )
    if which == "dumps":
        assert any("train.py" in evidence.text for evidence in verdict.root.evidence)
