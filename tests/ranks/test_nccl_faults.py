"""What ranks over NCCL are told when one differs, and when an op does not end (deaths: test_nccl_deaths.py).

They are processes, each with a stand-in for NCCL, whose device hangs from the moment on that a test says so.
It claims nothing about hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import distdbg as dist
from distdbg.errors import DistError, MismatchError
from distdbg.runtime.backends.nccl import library
from tests.unit.nccl.stand_in import Machine, of_rank

pytestmark = pytest.mark.ranks


def caught(function: Callable[[], object]) -> DistError | None:
    try:
        function()
    except DistError as error:
        return error
    return None


def begin() -> Machine:
    machine = Machine()
    library._library = machine.library()
    dist.init_process_group("nccl")
    return machine


def end_in_time(work: dist.Work | None) -> None:
    assert work is not None
    work.wait(timedelta(seconds=30))


def differ_and_go_on() -> tuple[str, int, list[str]]:
    machine = begin()
    error = caught(lambda: dist.all_reduce(of_rank([1.0] * (3 if dist.get_rank() == 1 else 4))))
    assert isinstance(error, MismatchError)
    dist.all_reduce(of_rank([1.0]))
    methods = machine.methods(dist.get_rank())
    dist.destroy_process_group()
    return error.what, len(machine.aborted), methods


def test_a_mismatch_is_told_before_nccl_has_the_op(ranks: Callable[..., Any]) -> None:
    for what, aborted, methods in ranks(differ_and_go_on, 3):
        assert "float32[4] on ranks 0,2, float32[3] on rank 1" in what
        assert (aborted, methods) == (0, ["allReduce"])


def come_late() -> tuple[str, str, str, list[int]]:
    """The limit is that of rank 0 alone; rank 1 has the op before, so that nobody's speed matters."""
    machine = begin()
    rank = dist.get_rank()
    dist.all_reduce(of_rank([1.0]))
    machine.hangs = True
    assert dist.group.WORLD is not None
    store = dist.group.WORLD.get_group_store()
    if rank == 0:
        store.wait(["issued"], timedelta(seconds=30))
    limit_s = 0.2 if rank == 0 else 60.0
    work = dist.all_reduce(of_rank([1.0]), async_op=True, timeout=limit_s)
    if rank == 1:
        store.set("issued", "")
    error = caught(lambda: end_in_time(work))
    assert error is not None
    after = caught(lambda: dist.all_reduce(of_rank([1.0])))
    assert isinstance(after, DistError)
    dist.destroy_process_group()
    return type(error).__name__, error.what, after.what, sorted(machine.aborted)


def test_an_op_that_the_device_does_not_end_is_aborted_at_its_limit(
    ranks: Callable[..., Any],
) -> None:
    late, reported = ranks(come_late, 2)
    assert late[0] == "OpTimeout"
    assert reported[0] == "CollectiveError"
    assert "all_reduce #2 on group 'world' cannot end: rank 0 reports: " in reported[1]
    for rank, (_, what, after, aborted) in enumerate((late, reported)):
        assert "all_reduce" in what
        assert "all_reduce" in after
        assert aborted == [rank]
