"""Programs that know torch only, watched: right ones end as without us, wrong ones raise with both lines."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin

from distdbg.diagnose.wording import short_site
from distdbg.errors import MismatchError, RankLeft
from distdbg.record.entries import MarkEntry
from distdbg.record.known_marks import NOT_A_MEMBER
from distdbg.record.reader import RecordFile

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def caught(function: Callable[[], object]) -> RuntimeError:
    with pytest.raises(RuntimeError) as info:
        function()
    return info.value


def all_kinds() -> list[float]:
    dist = begin()
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.ones(4)
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    dist.broadcast(x, 0)
    parts = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(parts, x * (rank + 1))
    flat = torch.zeros(8)
    dist.all_gather_into_tensor(flat, x)
    half = torch.zeros(2)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    dist.reduce_scatter_tensor(half, x)  # by SUM: gloo of torch 2.6 knows no other op here
    back = torch.zeros(4)
    dist.all_to_all_single(back, x)
    dist.barrier()
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    there = [
        dist.P2POp(dist.isend, x, 1 - rank),
        dist.P2POp(dist.irecv, back, 1 - rank),
    ]
    for work in dist.batch_isend_irecv(there):
        work.wait()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, rank)
    assert objects == [0, 1]
    group = dist.new_group([0, 1])
    dist.all_reduce(x, group=group)
    dist.destroy_process_group(group)
    dist.destroy_process_group()
    return [float(t.sum()) for t in (x, *parts, flat, half, back)]


@pytest.mark.parametrize("level", ["info", "detail", "off"])
def test_a_right_program_ends_as_without_us(
    watched: Callable[..., list[Any]], level: str, tmp_path: Path
) -> None:
    results = watched(all_kinds, level)
    assert results == [[32.0, 16.0, 32.0, 32.0, 16.0, 16.0]] * 2
    records = sorted((tmp_path / "run").glob("*.ddr"))
    assert len(records) == 2


def higher_layers() -> list[float]:
    dist = begin()
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank = dist.get_rank()
    most = functional.all_reduce(torch.ones(4) * (rank + 1), "max", dist.group.WORLD)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(2)])
    if torch.__version__ >= (2, 7):  # FSDP2 of older ones does not run on a CPU, with us or without
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    for _ in range(3):
        model(torch.ones(4, 8)).sum().backward()
    several = [torch.ones(3), torch.ones(5)]
    with dist._coalescing_manager():
        for each in several:
            dist.all_reduce(each)
    dist.monitored_barrier()
    with torch.inference_mode():
        dist.all_reduce(several[0])
    dist.destroy_process_group()
    return [float(most.sum()), *(float(each.sum()) for each in several)]


@pytest.mark.parametrize("level", ["info", "detail"])
def test_functional_collectives_fsdp_and_coalesced_ops_go_on(
    watched: Callable[..., list[Any]], level: str
) -> None:
    assert watched(higher_layers, level) == [[8.0, 12.0, 10.0]] * 2


def other_ops() -> list[str]:
    dist = begin()
    x = torch.ones(4)
    if dist.get_rank() == 0:
        error = caught(lambda: dist.all_reduce(torch.ones(3)))
    else:
        error = caught(lambda: dist.broadcast(torch.ones(5), 1))
    dist.all_reduce(x)  # nothing was exchanged
    assert x.tolist() == [2.0] * 4
    op = dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM
    differs = caught(lambda: dist.all_reduce(x, op))
    dist.destroy_process_group()
    assert isinstance(error, MismatchError)
    assert isinstance(differs, MismatchError)
    return [str(error), str(differs)]


def test_other_ops_are_told_with_both_lines_before_they_start(
    watched: Callable[..., list[Any]],
) -> None:
    for first, second in watched(other_ops):
        assert "all_reduce float32[3] on rank 0" in first
        assert "broadcast float32[5] on rank 1" in first
        assert first.count("test_watched_jobs.py:") >= 2
        assert "torch/distributed" not in first
        assert "MAX" in second


def uneven_batches() -> str:
    dist = begin()
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))

    def train() -> None:
        for _ in range(2 + rank):
            model(torch.ones(2, 4)).sum().backward()

    if rank == 0:
        train()
        time.sleep(0.5)  # the other is in its backward pass by then; nothing announces it
        dist.destroy_process_group()
        return ""
    error = caught(train)
    assert isinstance(error, RankLeft)
    return str(error)


def test_a_rank_that_skips_a_batch_ends_the_wait_in_ddp(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    _, text = watched(uneven_batches)
    assert "rank 0 left (destroyed the group at test_watched_jobs.py:" in text
    report = subprocess.run(
        [sys.executable, "-m", "distdbg", "analyze", os.fspath(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert "rank 0 left" in " ".join(report.split())


def calls_of_no_member() -> list[str]:
    dist = begin()
    alone = dist.new_group([0])
    x = torch.ones(2)
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        dist.all_reduce(x, group=alone)
    dist.destroy_process_group()
    assert [one.filename for one in reported] == [__file__] * len(reported), reported
    return [str(one.message) for one in reported]


def test_a_call_on_a_group_of_others_is_in_the_record(
    watched: Callable[..., list[Any]], tmp_path: Path
) -> None:
    text = "Running all_reduce on global rank 1 which does not belong to the given group."
    assert watched(calls_of_no_member) == [[], [text]]
    reported = [names_of_marks(path) for path in sorted((tmp_path / "run").glob("*.ddr"))]
    assert reported[0] == []
    [name] = reported[1]
    function, _, site = name.removeprefix(NOT_A_MEMBER).partition(" at ")
    assert function == "all_reduce"
    assert short_site(site).startswith("test_watched_jobs.py:")
    assert site.endswith("(calls_of_no_member)")


def names_of_marks(path: Path) -> list[str]:
    with RecordFile(path) as record:
        events = [record.event(number) for number in range(1, record.state().last_number + 1)]
    names = [event.name or "" for event in events if isinstance(event, MarkEntry)]
    return [name for name in names if name.startswith(NOT_A_MEMBER)]
