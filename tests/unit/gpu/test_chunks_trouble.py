"""Collectives in chunks between hosts that go wrong: each rank is a host by itself. The GPU is a stand-in."""

from __future__ import annotations

import faulthandler
import os
import signal
import weakref
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistError, MismatchError, OpTimeout, PeerLost
from distdbg.ops.call import Kind
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.backends.gpu import chunks, driver, engine, held_copies
from distdbg.runtime.backends.gpu.host_memory import HostMemory
from tests.unit.gpu.moving import copies, look_until_nothing_is_held, run
from tests.unit.gpu.stand_in import GpuArray, Machine

CHUNK = 64 << 10
COUNT = 10 * CHUNK // 4


@pytest.fixture(autouse=True)
def _far(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", CHUNK)
    monkeypatch.setattr(
        chunks, "_PATIENCE_NS", 50_000_000
    )  # a device that hangs is not waited for long
    monkeypatch.setenv("DISTDBG_TRANSPORT", "tcp")


def test_a_difference_writes_to_no_array_and_the_group_goes_on(machine: Machine) -> None:
    def program() -> list[float]:
        rank = dist.get_rank()
        x = machine.array(np.ones(COUNT + rank))
        with pytest.raises(MismatchError) as differs:
            dist.all_reduce(x)
        assert f"float32[{COUNT}] on rank 0, float32[{COUNT + 1}] on rank 1" in differs.value.what
        assert set(x.host.tolist()) == {1.0}
        y = machine.array(np.ones(COUNT))
        dist.all_reduce(y)
        return sorted(set(y.host.tolist()))

    assert run(program) == [[2.0]] * 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_device_that_hangs_in_the_middle_is_ended_by_the_limit(
    machine: Machine, is_async: bool
) -> None:
    def on_copy(nbytes: int) -> None:
        if dist.get_rank() == 1 and len(copies(machine, 1)) == 5:
            machine.hangs.add(1)

    machine.on_copy = on_copy

    def program() -> type[DistError]:
        x = machine.array(np.ones(COUNT))

        def step() -> None:
            work = dist.all_reduce(x, async_op=is_async, timeout=0.5)
            if work is not None:
                work.wait()

        with pytest.raises(DistError, match="all_reduce #1") as ended:
            step()
        if dist.get_rank() == 1:  # what the device may have still is not freed
            memory, arrays = cast(tuple[HostMemory, Any], held_copies._held[0].memory)
            assert memory._places
            assert arrays[0][0].address == x.host.ctypes.data
            machine.hangs.clear()
            look_until_nothing_is_held()
        return type(ended.value)

    assert OpTimeout in run(program)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_the_device_may_have_is_kept_where_cuda_makes_no_event(
    machine: Machine, is_async: bool
) -> None:
    def on_copy(nbytes: int) -> None:
        if dist.get_rank() == 1 and len(copies(machine, 1)) == 5:
            machine.makes_no_event.add(1)

    machine.on_copy = on_copy

    def program() -> None:
        x = machine.array(np.ones(COUNT))

        def step() -> None:
            work = dist.all_reduce(x, async_op=is_async)
            if work is not None:
                work.wait()

        with pytest.raises(DistError, match="all_reduce"):
            step()
        if dist.get_rank() == 1:
            machine.makes_no_event.clear()
            assert kept_places(x)
            held_copies.look()  # nobody will ever know
            assert kept_places(x)

    run(program)


def kept_places(x: GpuArray) -> int:
    """How many places of pinned memory are held together with the array."""
    for each in held_copies._held:
        memory, arrays = cast(tuple[Any, Any], each.memory)
        if isinstance(memory, HostMemory) and arrays[0][0].address == x.host.ctypes.data:
            return len(memory._places)
    return 0


def test_what_the_device_may_have_is_kept_where_somebody_is_impatient(machine: Machine) -> None:
    """Ctrl-C ends the op, and another one the wait for its copies."""

    def interrupt(event: Any) -> None:
        machine.interrupts.add(0)
        raise KeyboardInterrupt

    def program() -> None:
        driver = machine.driver()
        x = machine.array(np.ones(COUNT))
        blocks = [chunks.DeviceBlock(x.address, x.nbytes)]
        job = chunks.ChunkedOp(
            Kind.ALL_REDUCE, Dtype.float32, blocks, blocks,
            is_in_place=True, factor=None, reads=True, writes=True,
        )  # fmt: skip
        ready, arrays = driver.event(driver.stream()), ([x],)
        with pytest.raises(KeyboardInterrupt):
            chunks.Pipeline(driver).run(job, 1, x.nbytes, ready, lambda *_: None, interrupt, arrays)
        assert not machine.interrupts  # the second one has come
        assert kept_places(x)

    run(program, 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_copy_of_an_array_with_gaps_is_kept_until_its_op_is_done(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    copied: dict[int, weakref.ref[GpuArray]] = {}
    seen: list[bool] = []
    original = engine.device_buffer

    def buffer(x: Any, *, writable: bool = False) -> Any:
        made = original(x, writable=writable)
        if made.is_stand_in:
            copied[dist.get_rank()] = weakref.ref(made.array)
        return made

    monkeypatch.setattr(engine, "device_buffer", buffer)
    machine.on_copy = lambda nbytes: seen.append(copied[dist.get_rank()]() is not None)

    def program() -> list[float]:
        x = machine.array(np.ones(2 * COUNT))[::2]
        into = machine.array(np.zeros(2 * COUNT))
        work = dist.all_gather_into_tensor(into, x, async_op=is_async)
        if work is not None:
            work.wait()
        return sorted(set(into.host.tolist()))

    assert run(program) == [[1.0]] * 2
    assert len(copied) == 2
    assert all(seen)


def one_is_killed() -> list[Any]:
    chunks.CHUNK_NBYTES = CHUNK
    machine = Machine()  # a GPU of its own for each process
    driver._driver = machine.driver()
    dist.init_process_group()
    x = machine.array(np.ones(COUNT))
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        faulthandler.disable()
        before = len(copies(machine, 1))

        def die(nbytes: int) -> None:
            if len(copies(machine, 1)) == before + 5:
                os.kill(os.getpid(), signal.SIGKILL)

        machine.on_copy = die
    with pytest.raises(PeerLost) as lost:
        dist.all_reduce(x)
    return [lost.value.peer, lost.value.what]


@pytest.mark.ranks
def test_a_rank_that_is_killed_in_the_middle_is_told(ranks: Callable[..., list[Any]]) -> None:
    env = {"DISTDBG_GPU_IPC": "always", "DISTDBG_TRANSPORT": "tcp"}
    result = ranks(one_is_killed, 2, timeout=60.0, env=env, expect_exit={1: -signal.SIGKILL})
    peer, what = result[0]
    assert peer == 1
    assert "all_reduce #2" in what
