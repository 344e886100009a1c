"""Breakpoints armed while a rank exchanges messages of arrays on a GPU. The GPU is a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distdbg as dist
from distdbg.runtime.backends.gpu import driver
from tests.debugger.test_rules_stop_ranks import answer, arm
from tests.unit.gpu.stand_in import Machine


def messages_stop(is_async: bool) -> list[Any]:
    # A GPU of its own for each process: nothing can be opened.
    machine = Machine()
    machine.cannot |= {(0, "open"), (1, "open")}
    driver._driver = machine.driver()
    dist.init_process_group()
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]  # there is a group
    whys = answer()
    rank = dist.get_rank()
    x = machine.array([1.0, 2.0] if rank == 0 else [0.0, 0.0])

    def move() -> None:
        if is_async:
            work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
            assert work is not None
            work.wait()
        elif rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)

    move()
    dist.barrier()
    if rank == 0:
        arm("on=op,kind=send; on=op,kind=recv")
        store.set("are armed", "")
    store.wait(["are armed"])
    move()  # the first op that finds them
    move()
    return [whys, x.host.tolist()]


@pytest.mark.parametrize("is_async", [False, True])
def test_messages_on_a_gpu_stop_at_rules_that_are_armed_meanwhile(
    ranks: Callable[..., list[Any]], is_async: bool
) -> None:
    env = {"DISTDBG_GPU_IPC": "always"}
    zero, one = ranks(messages_stop, 2, env=env, timeout=60.0, is_async=is_async)
    assert [why.partition(" on group")[0] for why in zero[0]] == [
        "before send #2 to rank 1",
        "before send #3 to rank 1",
    ]
    assert [why.partition(" on group")[0] for why in one[0]] == [
        "before recv #2 from rank 0",
        "before recv #3 from rank 0",
    ]
    assert zero[1] == one[1] == [1.0, 2.0]
