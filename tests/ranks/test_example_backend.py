"""The backend of docs/how-to/write-a-backend.md: what it is told when ranks differ, are late or die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistError, MismatchError, OpTimeout, PeerLost

pytestmark = pytest.mark.ranks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-backend.md"
MODULE = "own_backend"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = PAGE.read_text()
    begin = text.index(f"# {MODULE}.py")
    (tmp_path / f"{MODULE}.py").write_text(text[begin : text.index("```", begin)])
    return tmp_path


def test_it_is_short_enough_to_read(folder: Path) -> None:
    lines = (folder / f"{MODULE}.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) < 100


def caught(function: Callable[[], object]) -> DistError:
    with pytest.raises(DistError) as info:
        function()
    return info.value


def go_wrong(folder: str) -> list[str]:
    sys.path.insert(0, folder)
    __import__(MODULE)
    dist.init_process_group("through_store", timeout=timedelta(seconds=40))
    rank = dist.get_rank()
    differs = caught(lambda: dist.all_reduce(np.ones(3 if rank == 1 else 4)))
    assert isinstance(differs, MismatchError)
    x = np.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [3.0, 3.0]

    late = dist.new_group()
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    if rank == 2:
        store.wait(["late/0", "late/1"], timedelta(seconds=30))
    limit = None if rank == 2 else timedelta(seconds=0.3)
    timeout = caught(lambda: dist.all_reduce(x, group=late, timeout=limit))
    store.set(f"late/{rank}", "")
    if rank != 2:
        assert isinstance(timeout, OpTimeout)
        assert timeout.missing == [2]

    if rank == 1:  # it agrees, and dies in the backend
        backend = sys.modules[MODULE].StoreBackend
        backend.allreduce = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
    lost = caught(lambda: dist.all_reduce(x))
    assert isinstance(lost, PeerLost)
    assert lost.peer == 1
    dist.destroy_process_group()
    return [differs.what, timeout.what, lost.what]


@pytest.mark.slow
def test_differences_late_ranks_and_dead_ones_are_named(
    ranks: Callable[..., list[Any]], folder: Path
) -> None:
    found = ranks(go_wrong, 3, folder=os.fspath(folder), expect_exit={1: -signal.SIGKILL})
    differs, timeout, lost = found[0]
    assert "float64[4] on ranks 0,2, float64[3] on rank 1" in differs
    assert "for rank 2 of 0-2" in timeout
    assert "rank 1 died (signal 9, SIGKILL)" in lost
