"""Ops on the host and ops on a GPU of one group have an order each, over NCCL, alone and beside gloo.

So an op that is on the host on some ranks and on a GPU on others is no difference that the check may find:
the other op may come yet. It is a deadlock, which the agent proves (tests/launch/test_run_deadlocks.py).
"""

from __future__ import annotations

import threading
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from tests.unit.nccl.stand_in import Machine, of_rank

LIMIT_S = 60
BACKENDS = ("nccl", "cpu:gloo,cuda:nccl")
LIMIT = timedelta(seconds=LIMIT_S / 2)


def on_host(count: int = 1) -> Any:
    return np.full(count, dist.get_rank() + 1, np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_on_both_may_come_in_different_orders(machine: Machine, backend: str) -> None:
    sums: list[float] = []

    def program() -> None:
        pg = dist.new_group(backend=backend, timeout=LIMIT)
        dist.all_reduce(of_rank([1]), group=pg)  # NCCL waits for all ranks in the first one
        for _ in range(3):
            x, y = on_host(), of_rank([1])
            first, second = (x, y) if dist.get_rank() else (y, x)
            dist.all_reduce(first, group=pg)
            dist.all_reduce(second, group=pg)
            sums.append(float(x[0]))
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert sums == [3.0] * 6
    assert machine.aborted == set()


@pytest.mark.parametrize("level", ["INFO", "DETAIL"])
def test_another_thread_may_have_ops_on_the_host_meanwhile(machine: Machine, level: str) -> None:
    """As one that writes a checkpoint: here it is sure that the order differs between ranks."""
    sums: list[float] = []

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel[level])
        rank = dist.get_rank()
        pg = dist.new_group(backend="nccl", timeout=LIMIT)
        store = pg.get_group_store()

        def checkpoint() -> None:
            if rank == 0:
                store.wait(["begun"], LIMIT)
            x = on_host()
            work = dist.all_reduce(x, group=pg, async_op=True)
            if rank == 1:
                store.set("begun", "")
            assert work is not None
            work.wait(LIMIT)
            sums.append(float(x[0]))

        thread = threading.Thread(target=copy_context().run, args=(checkpoint,))
        if rank == 1:
            thread.start()
            store.wait(["begun"], LIMIT)
            dist.all_reduce(of_rank([1]), group=pg)
        else:
            y = of_rank([1])
            work = dist.all_reduce(y, group=pg, async_op=True)
            thread.start()
            assert work is not None
            work.wait(LIMIT)
        thread.join(LIMIT_S)
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert sums == [3.0, 3.0]
