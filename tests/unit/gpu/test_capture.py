"""Ops while the program's stream captures a CUDA graph: an error before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError
from distdbg.runtime.backends.gpu import chunks
from tests.unit.gpu.moving import move, run
from tests.unit.gpu.stand_in import Machine, _Stream


@pytest.mark.parametrize("ipc", ["always", "off"])
def test_an_op_in_a_capture_is_refused_and_the_next_one_is_carried_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, ipc: str
) -> None:
    monkeypatch.setenv("DISTDBG_GPU_IPC", ipc)
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", 4096)
    capturing: set[int] = set()
    monkeypatch.setattr(
        _Stream, "is_capturing", lambda self: dist.get_rank() in capturing, raising=False
    )

    def program() -> list[float]:
        x = machine.array(np.ones(4 << 20, np.float32))
        capturing.add(dist.get_rank())
        calls: list[Any] = [
            lambda: dist.all_reduce(x),
            lambda: dist.all_reduce(x, async_op=True),
            lambda: move(x),
            lambda: move(x, is_async=True),
        ]
        for call in calls:
            with pytest.raises(UsageError, match="captures a CUDA graph"):
                call()
        capturing.discard(dist.get_rank())
        dist.all_reduce(x)
        move(x)
        return sorted(set(x.host.tolist()))

    assert run(program) == [[2.0]] * 2
