"""Waits that only torch can end, as all of NCCL's: on gloo, whose ops are treated like NCCL's here.

There is no NCCL without a GPU. What is ours of it, that a wait is not cut into slices and is ended by the
thread that looks after ops, is the same.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin, treat_engines_as

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

torch = pytest.importorskip("torch")


def begin_as_on_nccl() -> Any:
    treat_engines_as(distdbg_is_bound_to_thread=True)
    dist = begin()
    dist.all_reduce(torch.ones(1))
    return dist


def error_of(function: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as info:
        function()
    return f"{type(info.value).__name__}: {info.value}"


def other_ops() -> str:
    dist = begin_as_on_nccl()
    x = torch.ones(4)
    if dist.get_rank() == 0:
        return error_of(lambda: dist.all_reduce(x))
    time.sleep(0.5)  # the other waits in torch by then
    return error_of(lambda: dist.broadcast(x, 1))


@pytest.mark.parametrize("level", ["info", "detail"])
def test_a_wait_that_torch_alone_can_end_ends_with_both_lines(
    watched: Callable[..., list[Any]], level: str
) -> None:
    for reported in watched(other_ops, level):
        assert reported.startswith("MismatchError: ")
        assert "all_reduce float32[4] on rank 0, broadcast float32[4] on rank 1" in reported
        for rank, op in ((0, "all_reduce"), (1, "broadcast")):
            assert re.search(
                rf"rank {rank} called {op}\S* .*at test_waits_as_nccls.py:\d+", reported
            ), reported


def dies() -> str:
    dist = begin_as_on_nccl()
    if dist.get_rank() == 1:
        time.sleep(0.5)  # the other waits in torch by then
        os.kill(os.getpid(), signal.SIGKILL)
    return error_of(lambda: dist.all_reduce(torch.ones(4)))


@pytest.mark.parametrize("level", ["info", "detail"])
def test_a_peer_that_was_killed_is_named(watched: Callable[..., list[Any]], level: str) -> None:
    reported = watched(dies, level, expect_exit={1: -signal.SIGKILL})[0]
    assert reported.startswith("PeerLost: ")
    assert "rank 1" in reported.splitlines()[0]
