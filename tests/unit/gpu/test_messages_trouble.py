"""Messages of arrays on a GPU that go wrong, or have to go through the host. The GPU is a stand-in."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import (
    CollectiveError,
    DistBackendError,
    DistError,
    MismatchError,
    OpTimeout,
    PeerLost,
)
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.gpu import driver, held_copies
from tests.unit.gpu.moving import copies, look_until_nothing_is_held, move, run
from tests.unit.gpu.stand_in import Machine


@pytest.mark.parametrize("on_host", [False, True])
def test_a_difference_is_told_on_both_sides_and_the_group_goes_on(
    machine: Machine, on_host: bool
) -> None:
    def program() -> float:
        rank = dist.get_rank()
        for dtype, count in (([np.int32, np.float32][rank], 4), (np.float32, 4 + rank)):
            ones: Any = np.ones(count, dtype)
            x = ones if rank == 1 and on_host else machine.array(ones, dtype)
            with pytest.raises(MismatchError) as differs:
                move(x)
            assert str(differs.value).count("moving.py") == 2  # the lines of both sides
        x = machine.array([3.0 - rank])
        move(x)
        return float(x.host[0])

    assert run(program) == [3.0, 3.0]
    assert copies(machine, 1) == [4]


def test_the_level_decides_whether_dtypes_are_compared(machine: Machine) -> None:
    def program() -> Any:
        dist.set_debug_level(dist.DebugLevel.OFF)
        rank = dist.get_rank()
        x = machine.array([1.0, 2.0] if rank == 0 else [0, 0], [np.float32, np.int32][rank])
        move(x)
        return x.host.tolist()

    assert run(program)[1] == np.array([1, 2], np.float32).view(np.int32).tolist()


def test_who_cannot_open_memory_gets_data_and_is_offered_nothing_again(machine: Machine) -> None:
    machine.cannot.add((1, "open"))

    def program() -> list[float]:
        found = []
        for value in (1.0, 2.0):
            x = machine.array([value] if dist.get_rank() == 0 else [0.0])
            move(x)
            found.append(float(x.host[0]))
        return found

    assert run(program) == [[1.0, 2.0]] * 2
    # The second one is copied by CuPy, as a whole, before it is sent.
    assert machine.names(0).count("export") == 1
    assert copies(machine, 0) == [4]


def test_memory_that_cannot_be_exported_goes_through_the_host(machine: Machine) -> None:
    machine.cannot.add((0, "export"))

    def program() -> float:
        x = machine.array([4.0 - dist.get_rank()])
        move(x)
        return float(x.host[0])

    assert run(program) == [4.0, 4.0]
    assert "open" not in machine.names(1)


def test_where_ipc_is_off_nothing_is_offered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")

    def program() -> float:
        x = machine.array(np.full(1 << 18, 4.0 - dist.get_rank()))
        move(x)
        return float(x.host[0])

    assert run(program) == [4.0, 4.0]
    assert machine.names(0) == machine.names(1) == []


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("side", [0, 1])
def test_a_limit_that_is_over_ends_it_on_both_sides(
    machine: Machine, side: int, is_async: bool
) -> None:
    """Rank `side` waits for a message that the other rank never begins."""

    def program() -> None:
        if dist.get_rank() != side:
            with pytest.raises(DistError):
                dist.all_reduce(np.ones(1))
            return
        x = machine.array([1.0])
        with pytest.raises(OpTimeout) as late:
            move(x, 0.2, is_async=is_async)
        assert ("send" if side == 0 else "recv") in late.value.what

    with pytest.raises(DistError):  # the group is broken: run_threads says so
        run(lambda: (program(), dist.barrier()))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_copy_that_hangs_is_ended_by_the_limit_and_one_that_fails_at_once(
    machine: Machine, is_async: bool
) -> None:
    for how, expected in (("hangs", OpTimeout), ("fails", DistBackendError)):
        getattr(machine, how).add(1)

        def program(expected: type[DistError] = expected) -> str:
            x = machine.array([1.0])
            with pytest.raises(DistError) as ended:
                move(x, 0.3 if dist.get_rank() else None, is_async=is_async)
            if dist.get_rank() == 1:
                assert isinstance(ended.value, expected)
            return ended.value.what

        reported = run(program)
        if how == "fails":
            assert reported[1] == "recv on group 'world' failed on the GPU: CudaError: 700"
            assert "recv on group 'world' failed on the GPU" in reported[0]
        getattr(machine, how).clear()


def test_what_a_copy_reads_and_writes_is_held_until_it_is_done(machine: Machine) -> None:
    machine.on_copy = lambda nbytes: machine.hangs.add(1)

    def program() -> None:
        x = machine.array(np.zeros(8, np.float32))[::2]  # received into memory of our own
        if dist.get_rank() == 0:
            with pytest.raises(DistError):
                move(x)
            return
        with pytest.raises(OpTimeout):
            move(x, 0.3)
        [held] = held_copies._held
        assert isinstance(held.memory, DeviceBuffer)
        assert held.memory.is_stand_in
        assert dist.group.WORLD is not None
        own: Any = dist.group.WORLD.engine
        own.on_gpu.close()
        assert machine.left_open() == 2  # the sender's array and event
        machine.hangs.clear()
        look_until_nothing_is_held()
        assert machine.left_open() == 0

    run(program)


def test_a_sender_that_gives_up_while_its_memory_is_read_ends_the_recv(machine: Machine) -> None:
    machine.hangs.add(1)

    def program() -> None:
        x = machine.array([1.0])
        if dist.get_rank() == 0:
            with pytest.raises(OpTimeout):
                dist.send(x, 1, timeout=timedelta(seconds=0.2))
            machine.hangs.clear()
        else:
            with pytest.raises(CollectiveError) as ended:
                dist.recv(x, 0)
            assert "rank 0" in str(ended.value)

    run(program)


def test_an_interrupt_while_the_device_copies_ends_both_sides(machine: Machine) -> None:
    machine.interrupts.add(1)

    def program() -> None:
        x = machine.array([1.0])
        if dist.get_rank() == 1:
            with pytest.raises(KeyboardInterrupt):
                move(x)
        else:
            with pytest.raises(DistError) as ended:
                move(x)
            assert "rank 1" in str(ended.value)
            assert "recv on group 'world' was interrupted" in str(ended.value)

    run(program)


def test_nothing_is_offered_to_a_rank_of_another_host(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_TRANSPORT", "tcp")  # each rank is a host by itself

    def program() -> float:
        x = machine.array(np.full(1 << 16, 4.0 - dist.get_rank()))
        move(x)
        dist.barrier()
        return float(x.host[-1])

    assert run(program) == [4.0, 4.0]
    assert machine.names(0) == []
    assert machine.names(1) == ["copy"]  # from the host


def test_who_knows_of_no_offers_is_offered_none(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank of an earlier version has not said that it takes them."""
    monkeypatch.setattr("distdbg.runtime.backends.gpu.capabilities.MESSAGES", 2)

    def program() -> float:
        if dist.get_rank() == 0:
            monkeypatch.setattr("distdbg.runtime.backends.gpu.capabilities.MESSAGES", 1)
        dist.barrier()
        x = machine.array([4.0 - dist.get_rank()])
        move(x)
        return float(x.host[0])

    assert run(program) == [4.0, 4.0]
    assert machine.names(0) == machine.names(1) == []


def test_an_abort_ends_messages_in_flight(machine: Machine) -> None:
    def program() -> None:
        group: Any = dist.group.WORLD
        other = 1 - dist.get_rank()
        x, y = machine.array([1.0]), machine.array([1.0])
        # Neither has another side.
        works = [dist.irecv(x, other, tag=6), dist.isend(y, other, tag=5)]
        dist.barrier()
        if dist.get_rank() == 0:
            group.abort()
        for work in works:
            assert work is not None
            with pytest.raises(DistError):
                work.wait()

    run(program)


def one_is_killed(who: int) -> str:
    # A GPU of its own for each process: nothing can be opened.
    machine = Machine()
    machine.cannot |= {(0, "open"), (1, "open")}
    driver._driver = machine.driver()
    dist.init_process_group()
    x = machine.array([1.0])
    move(x)
    dist.barrier()
    if dist.get_rank() == who:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(PeerLost) as lost:
        dist.send(machine.array([1.0]), 1) if who else dist.recv(x, 0)
    return lost.value.what


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_is_killed_is_told(ranks: Callable[..., list[Any]], who: int) -> None:
    env = {"DISTDBG_GPU_IPC": "always", "PYTHONFAULTHANDLER": ""}
    result = ranks(
        one_is_killed, 2, timeout=60.0, env=env, expect_exit={who: -signal.SIGKILL}, who=who
    )
    assert f"rank {who}" in result[1 - who]
