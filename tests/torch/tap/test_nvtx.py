"""Ops and spans of a watched job as NVTX ranges. A stand-in for torch.cuda.nvtx records."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin

from distdbg.torch_bridge.tap.nvtx import find_nvtx

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

TorchWithCuda = SimpleNamespace(version=SimpleNamespace(cuda="12.8"), cuda=SimpleNamespace(nvtx=1))


def test_ranges_are_made_where_they_are_wanted_and_torch_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    assert find_nvtx(TorchWithCuda) is None
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/nsight/libToolsInjection64.so")
    assert find_nvtx(TorchWithCuda) == 1
    monkeypatch.setenv("DISTDBG_NVTX", "0")
    assert find_nvtx(TorchWithCuda) is None
    monkeypatch.setenv("DISTDBG_NVTX", "1")
    assert find_nvtx(TorchWithCuda) == 1
    assert find_nvtx(SimpleNamespace(version=SimpleNamespace(cuda=None))) is None


def ranges_of_a_step() -> list[str]:
    from torch.nn.parallel import DistributedDataParallel

    reported: list[str] = []
    recording_stand_in = SimpleNamespace(
        range_push=reported.append, range_pop=lambda: reported.append("")
    )
    torch.version.cuda, torch.cuda.nvtx = "12.8", recording_stand_in
    dist = begin()
    torch.version.cuda = None
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reported.clear()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    dist.all_reduce(torch.ones(2))
    dist.all_to_all_single(torch.ones(2), torch.ones(2))
    (dist.recv if rank else dist.send)(torch.ones(2), 1 - rank)
    found = list(reported)
    dist.destroy_process_group()
    return found


def test_ops_and_spans_of_a_step_are_ranges(watched: Callable[..., list[Any]]) -> None:
    reported = watched(ranges_of_a_step, "info", {"DISTDBG_NVTX": "1"})
    for rank, words in enumerate(reported):
        assert words == [
            "forward", "", "backward", "DDP bucket 0: weight to bias on group 'world'", "", "",
            "optimizer", "", "all_reduce on group 'world'", "", "all_to_all_single on group 'world'", "",
            "recv" if rank else "send", "",
        ]  # fmt: skip
