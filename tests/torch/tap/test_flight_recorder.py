"""One job in torch's flight recorder, in torch's profiler and in our record: all three tell the same ops."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm_ranks import run_warm_ranks

from distdbg.diagnose.load.open import open_paths
from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.ops import IN_FLIGHT
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag

if TYPE_CHECKING:
    from warm_python import WarmPython

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

HERE = os.fspath(Path(__file__).parent)


def trains_and_dumps(dumps: str) -> dict[str, int]:
    """A few ops of each sort, some of them in a profiler; how many of each sort that has seen."""
    from distdbg.torch_bridge.hook import install

    install()
    import torch.distributed as dist
    from torch._C._distributed_c10d import _dump_fr_trace
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import profile

    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['TORCH_FILE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(3, 5))
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
    x = torch.ones(4, dtype=torch.float64)
    with profile() as profiler:
        dist.all_reduce(x)
        dist.broadcast(x[:3], 1)
        model(torch.ones(2, 3)).sum().backward()
    dist.all_gather([torch.zeros(2), torch.zeros(2)], torch.ones(2))
    dist.barrier()
    seen: dict[str, int] = {}
    for event in profiler.events():
        if event.name.startswith("gloo:"):
            seen[event.name] = seen.get(event.name, 0) + 1
    Path(dumps).mkdir(exist_ok=True)
    (Path(dumps) / f"trace_rank_{rank}").write_bytes(_dump_fr_trace())
    dist.destroy_process_group()
    return seen


def collectives(session: Session, rank: int) -> list[tuple[Any, ...]]:
    """What was called on the default group, by its number."""
    log = session.ranks[rank]
    found = []
    for at in range(len(log.ops)):
        if log.ops.flags[at] & (Flag.MESSAGE | Flag.ASIDE):
            continue
        form = session.forms[log.ops.form[at]]
        has_ended = log.ops.status[at] != IN_FLIGHT
        shape = form.inputs.items[:1]
        found.append((log.ops.seq[at], form.kind, form.dtype, shape, has_ended))
    return sorted(found)


def test_torchs_recorder_and_ours_have_the_same_ops(
    warm_python: WarmPython, tmp_path: Path
) -> None:
    dumps = tmp_path / "dumps"
    env = {
        "PYTHONPATH": os.pathsep.join([HERE, os.path.dirname(HERE)]),
        "DISTDBG_RUN_DIR": os.fspath(tmp_path / "run"),
        "TORCH_FILE": os.fspath(tmp_path / "torch-store"),
        "OMP_NUM_THREADS": "1",
    }
    profiled = run_warm_ranks(
        warm_python, tmp_path, trains_and_dumps, 2, env=env, dumps=os.fspath(dumps)
    )
    ours = load_run(tmp_path / "run")
    (theirs,) = open_paths([dumps])
    for rank in range(2):
        mine = collectives(ours, rank)
        assert mine == collectives(theirs, rank)
        assert len(mine) > 10
        names = [ours.comms[comm] for comm in ours.ranks[rank].ops.comm]
        assert names.count("DDP bucket 0: bias to weight") >= 2
        # Two all_reduces: the program's own, and the bucket of one step.
        assert profiled[rank]["gloo:all_reduce"] == 2
        assert profiled[rank]["gloo:broadcast"] >= 1
