"""Ops over NCCL while the program's stream captures a CUDA graph: an error before anything is sent."""

from __future__ import annotations

import ctypes
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError
from tests.unit.nccl.stand_in import Machine, StandInStream, of_rank

LIMIT_S = 60


@pytest.mark.parametrize("level", ["INFO", "DETAIL"])
def test_an_op_in_the_capture_of_a_graph_is_refused_before_anything_is_sent(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    capturing: set[int] = set()
    monkeypatch.setattr(
        StandInStream,
        "is_capturing",
        lambda self: threading.get_ident() in capturing,
        raising=False,
    )

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel[level])
        pg = dist.new_group(backend="nccl")
        x = of_rank([1.0])
        if dist.get_rank() == 0:  # the other rank is told nothing of it
            capturing.add(threading.get_ident())
            with pytest.raises(UsageError, match="captures a CUDA graph"):
                dist.all_reduce(x, group=pg)
            with pytest.raises(UsageError, match="captures a CUDA graph"):
                dist.isend(x, 1, group=pg)
            with pytest.raises(UsageError, match="barrier: the stream captures a CUDA graph"):
                dist.barrier(group=pg)
            capturing.clear()
        dist.all_reduce(x, group=pg)
        dist.all_reduce(np.ones(1), group=pg)
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert [machine.methods(rank) for rank in (0, 1)] == [["allReduce"], ["allReduce"]]


@pytest.mark.parametrize("ask", ["wait", "wait on the host", "is_completed"])
def test_an_earlier_op_is_not_waited_for_in_a_capture_and_the_group_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    capturing: set[int] = set()
    monkeypatch.setattr(
        StandInStream,
        "is_capturing",
        lambda self: threading.get_ident() in capturing,
        raising=False,
    )

    def program() -> None:
        pg = dist.new_group(backend="nccl")
        x = of_rank([1.0])
        dist.all_reduce(x, group=pg)
        dist.barrier()
        machine.hangs = True
        dist.barrier()
        work: Any = dist.all_reduce(x, group=pg, async_op=True)
        capturing.add(threading.get_ident())
        asks: dict[str, Any] = {
            "wait": work.wait,
            "wait on the host": lambda: work.wait(timedelta(seconds=30)),
            "is_completed": work.is_completed,
        }
        with pytest.raises(UsageError, match="no op that began before can be waited for"):
            asks[ask]()
        capturing.discard(threading.get_ident())
        dist.barrier()
        machine.hangs = False
        dist.barrier()
        work.wait()
        dist.all_reduce(x, group=pg)
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert [machine.methods(rank).count("allReduce") for rank in (0, 1)] == [3, 3]


def test_the_thread_that_looks_after_ops_ends_no_capture_of_another(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[tuple[str, int]] = []

    def exchange(mode: Any) -> int:
        modes.append((threading.current_thread().name, mode._obj.value))
        return 0

    driver = SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)

    def program() -> None:
        pg = dist.new_group(backend="nccl")
        dist.all_reduce(of_rank([1.0]), group=pg)
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert modes
    assert set(modes) == {("distdbg-nccl-watchdog", 2)}
