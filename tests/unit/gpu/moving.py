"""What the tests of messages on a GPU have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import distdbg as dist
from distdbg.runtime.backends.gpu import held_copies
from tests.unit.gpu.stand_in import Machine


def run(program: Callable[[], Any], size: int = 2) -> list[Any]:
    return dist.run_threads(program, size, timeout_s=30)


def move(x: Any, limit_s: float | None = None, *, is_async: bool = False) -> None:
    """From rank 0 to rank 1."""
    is_send = dist.get_rank() == 0
    limit = None if limit_s is None else timedelta(seconds=limit_s)
    if is_async:
        work = dist.isend(x, 1, timeout=limit) if is_send else dist.irecv(x, 0, timeout=limit)
        assert work is not None
        work.wait()
    elif is_send:
        dist.send(x, 1, timeout=limit)
    else:
        dist.recv(x, 0, timeout=limit)


def copies(machine: Machine, rank: int) -> list[int]:
    return [nbytes for name, nbytes in machine.calls[rank] if name == "copy"]


def look_until_nothing_is_held() -> None:
    """Another rank may be looking at this moment, and have asked the device before."""
    until = time.monotonic() + 20.0
    held_copies.look()
    while held_copies._held and time.monotonic() < until:
        time.sleep(0.001)  # lets the other rank end its look
        held_copies.look()
    assert held_copies._held == []
