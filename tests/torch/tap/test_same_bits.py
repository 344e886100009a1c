"""DDP and FSDP2 train the same model plain on gloo, watched at both levels, and on our backend.

A watched job computes what it computes without us, to the last bit, on any number of ranks, and so does
one on our backend, which adds up in gloo's order (test_reduction_order.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm_ranks import run_warm_ranks

if TYPE_CHECKING:
    from warm_python import WarmPython

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

HERE = os.fspath(Path(__file__).parent)
STEPS = 6
#: In this order, since what is installed stays.
WAYS = {"plain": "gloo", "info": "gloo", "detail": "gloo", "distdbg": "distdbg"}


def train() -> list[float]:
    """Losses, then all parameters."""
    from torch.nn.parallel import DistributedDataParallel

    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 24), torch.nn.BatchNorm1d(24), torch.nn.Tanh()]
    model = DistributedDataParallel(
        torch.nn.Sequential(*layers, torch.nn.Linear(24, 4)), bucket_cap_mb=0.001
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    chance = torch.Generator().manual_seed(100 + rank)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        inputs = torch.randn(8, 16, generator=chance)
        loss = (model(inputs) - inputs[:, :4]).square().mean()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        torch.distributed.all_reduce(total)
        found.append(float(total))
    return found + [float(x) for one in model.parameters() for x in one.detach().flatten()]


def train_sharded() -> list[float]:
    """All parameters of a model under FSDP2, whose blocks do not divide by the number of ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layers = [torch.nn.Linear(37, 61), torch.nn.Tanh(), torch.nn.Linear(61, 37)]
    model = torch.nn.Sequential(*layers)
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for part in (layers[0], layers[2], model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    chance = torch.Generator().manual_seed(100 + torch.distributed.get_rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        inputs = torch.randn(8, 37, generator=chance)
        (model(inputs) - inputs).square().mean().backward()
        optimizer.step()
    whole: list[Any] = [one.full_tensor().detach() for one in model.parameters()]
    return [float(x) for one in whole for x in one.flatten()]


def train_in_all_ways() -> dict[str, list[float]]:
    import torch.distributed as dist

    from distdbg.torch_bridge.guarded import state
    from distdbg.torch_bridge.hook import install

    found = {}
    for way, backend in WAYS.items():
        if way == "info":
            install()
        os.environ["DISTDBG_DEBUG"] = "info" if way == "info" else "detail"
        os.environ["DISTDBG_RUN_DIR"] = f"{os.environ['RUNS']}/{way}"
        dist.init_process_group(
            backend,
            init_method=f"file://{os.environ['RUNS']}-store-{way}",
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
        )
        is_watched = state["job"] is not None and bool(state["job"].tapped())
        assert is_watched == (way in ("info", "detail"))
        found[way] = train() + train_sharded()
        dist.destroy_process_group()
    return found


@pytest.mark.parametrize("size", [2, 3, 4])
def test_training_has_the_same_bits_watched_and_on_our_backend(
    size: int, warm_python: WarmPython, tmp_path: Path
) -> None:
    env = {
        "PYTHONPATH": os.pathsep.join([HERE, os.path.dirname(HERE)]),
        "RUNS": os.fspath(tmp_path / "run"),
        "OMP_NUM_THREADS": "1",
    }
    results: list[dict[str, Any]] = run_warm_ranks(
        warm_python, tmp_path, train_in_all_ways, size, env=env
    )
    for found in results:
        assert found == results[0], "all ranks have the same"
        assert found["info"] == found["plain"]
        assert found["detail"] == found["plain"]
        assert found["distdbg"] == found["plain"]
