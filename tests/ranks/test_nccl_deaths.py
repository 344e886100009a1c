"""A rank that dies while NCCL has an op: a recording stand-in for NCCL, whose devices hang."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import PeerLost
from distdbg.runtime.backends.nccl import alike, library
from tests.unit.nccl.stand_in import Machine, StandInArray


def one_dies() -> dict[str, Any]:
    machine = Machine()
    library._library = machine.library()
    dist.init_process_group("nccl", timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    x = StandInArray(np.ones(4, np.float32), rank)
    dist.all_reduce(x)
    machine.hangs = True
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()  # the stream's: all have agreed, and this rank has queued it
    assert dist.group.WORLD is not None
    store = dist.group.WORLD.get_group_store()
    if rank == 0:
        store.set("queued", "")
    else:
        store.wait(["queued"])
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost) as lost:
        work.wait(timedelta(seconds=60))
    with pytest.raises(dist.DistError, match="cannot run"):
        dist.all_reduce(x)
    dist.destroy_process_group()
    return {"peer": lost.value.peer, "how": lost.value.how, "aborted": sorted(machine.aborted)}


def test_the_death_of_a_peer_aborts_what_nccl_has(ranks: Callable[..., list[Any]]) -> None:
    result = ranks(one_dies, 2, timeout=60.0, expect_exit={1: -signal.SIGKILL})[0]
    assert result["peer"] == 1
    assert "SIGKILL" in result["how"]
    assert result["aborted"] == [0]


def die_before_comparing() -> list[Any]:
    """Rank 1 dies after the ranks have met, and before it has said what it has for NCCL."""
    machine = Machine()
    library._library = machine.library()
    if os.environ["RANK"] == "1":
        faulthandler.disable()
        alike.compare = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost) as lost:
        dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timedelta(seconds=60))
    return [lost.value.peer, lost.value.how]


def test_a_death_is_told_while_the_group_is_made(
    ranks: Callable[..., list[Any]],
) -> None:
    peer, how = ranks(die_before_comparing, 2, timeout=50.0, expect_exit={1: -signal.SIGKILL})[0]
    assert peer == 1
    assert "SIGKILL" in how
