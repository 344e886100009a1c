"""An op whose array is on the host on some ranks and on a GPU on others, over NCCL, alone and beside gloo."""

from __future__ import annotations

import threading
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistError, MismatchError, UsageError
from distdbg.ops.call import Call, Kind
from distdbg.runtime.backends import announcements
from tests.unit.nccl.stand_in import Machine, of_rank

LIMIT_S = 60
BACKENDS = ("nccl", "cpu:gloo,cuda:nccl")
#: Nothing here takes so long: what ends sooner was found, and not told by a limit.
LIMIT = timedelta(seconds=LIMIT_S / 2)


def on_host(count: int = 1) -> Any:
    return np.full(count, dist.get_rank() + 1, np.float32)


def differ(run: Any, asynchronous: bool) -> MismatchError:
    try:
        work = run(asynchronous)
        if work is not None:
            work.wait(LIMIT)
    except MismatchError as error:
        return error
    raise AssertionError("no difference was told")


def has_both_lines(error: MismatchError) -> bool:
    sites = [site for side in error.sides for site in side["sites"]]
    return len(error.sides) == 2 and all(".py:" in each["call_site"] for each in sites)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_at_detail_all_are_told_both_lines_and_the_group_goes_on(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    transport: str,
    backend: str,
    asynchronous: bool,
) -> None:
    monkeypatch.setenv("DISTDBG_TRANSPORT", transport)
    told: dict[int, MismatchError] = {}
    sums: dict[int, list[float]] = {}

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        rank = dist.get_rank()
        pg = dist.new_group(backend=backend, timeout=LIMIT)
        for _ in range(2):
            x = on_host() if rank == 1 else of_rank([1.0])
            told[rank] = differ(
                lambda later, x=x: dist.all_reduce(x, group=pg, async_op=later), asynchronous
            )
            gpu, host = of_rank([1.0]), on_host()
            dist.all_reduce(gpu, group=pg)
            dist.all_reduce(host, group=pg)
            sums[rank] = [float(host[0])]
            engine: Any = pg.engine
            numbers = [
                engine.next_seq(Call(Kind.ALL_REDUCE, (y,), (y,)))
                for y in (on_host(), of_rank([1]))
            ]
            told_numbers: list[Any] = [None] * 3
            dist.all_gather_object(told_numbers, numbers)
            assert told_numbers == [numbers] * 3
        dist.destroy_process_group(pg)

    dist.run_threads(program, 3, timeout_s=LIMIT_S)
    assert len(told) == 3
    for rank, error in told.items():
        assert "on cuda" in error.what
        assert "on cpu on rank 1" in error.what
        assert "the group is still usable" in str(error)
        assert error.ranks == [1], rank
        assert has_both_lines(error), error
    assert sums == {rank: [6.0] for rank in range(3)}
    assert machine.aborted == set()


def blocks() -> list[Any]:
    return [on_host(), on_host()] if dist.get_rank() else [of_rank([1]), of_rank([1])]


def all_to_all(pg: dist.ProcessGroup) -> None:
    dist.all_to_all(blocks(), blocks(), group=pg)


def barrier_beside_all_reduce(pg: dist.ProcessGroup) -> None:
    if dist.get_rank():
        dist.all_reduce(on_host(), group=pg)
    else:
        dist.barrier(pg)


def in_a_block(pg: dist.ProcessGroup) -> None:
    if dist.get_rank():
        dist.all_reduce(on_host(), group=pg)
    else:
        with dist._coalescing_manager(pg, async_ops=True) as block:
            dist.all_reduce(of_rank([1]), group=pg)
        block.wait()


@pytest.mark.parametrize("call", [all_to_all, barrier_beside_all_reduce, in_a_block])
def test_at_detail_every_kind_of_op_is_told(machine: Machine, call: Any) -> None:
    told: list[MismatchError] = []

    def program() -> None:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        pg = dist.new_group(backend="nccl", timeout=LIMIT)
        told.append(differ(lambda later: call(pg), False))
        dist.all_reduce(of_rank([1]), group=pg)
        dist.all_reduce(on_host(), group=pg)
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert [has_both_lines(error) for error in told] == [True, True]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_at_info_it_is_told_when_the_rank_with_the_gpu_comes_to_no_op_on_the_host(
    machine: Machine, backend: str, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "GRACE_NS", 0)
    machine.hangs = True
    told: dict[int, MismatchError] = {}

    def program() -> None:
        rank = dist.get_rank()
        pg = dist.new_group(backend=backend, timeout=LIMIT)

        def run(later: bool) -> Any:
            x = on_host() if rank else of_rank([1])
            work = dist.all_reduce(x, group=pg, async_op=rank == 0 or later)
            if rank == 0 and work is not None:
                work.wait(LIMIT)
            return work

        told[rank] = differ(run, asynchronous)
        machine.hangs = False
        with suppress(DistError):  # the same difference, where it is broken
            dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert len(told) == 2
    for error in told.values():
        assert "on cuda" in error.what
        assert "on cpu on rank 1" in error.what
        assert has_both_lines(error), error
        assert "unusable" in str(error)


@pytest.mark.parametrize("backend", BACKENDS)
def test_at_info_ops_on_both_may_come_in_different_orders(machine: Machine, backend: str) -> None:
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


def test_an_op_that_is_refused_on_one_rank_makes_no_later_op_differ(machine: Machine) -> None:
    def program() -> None:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        pg = dist.new_group(backend="nccl", timeout=LIMIT)
        if dist.get_rank():
            x = on_host()
            x.flags.writeable = False
            with pytest.raises(UsageError):
                dist.all_reduce(x, group=pg)
        for _ in range(3):
            dist.all_reduce(of_rank([1]), group=pg)
            dist.all_reduce(on_host(), group=pg)
        dist.destroy_process_group(pg)

    dist.run_threads(program, 2, timeout_s=LIMIT_S)
    assert machine.aborted == set()
