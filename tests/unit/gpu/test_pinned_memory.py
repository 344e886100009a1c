"""Pinned memory within its limit: messages in pieces wait for room for a moment, other ops not at all."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import ConfigError, DistError, OpTimeout
from distdbg.ops.call import Call, Kind
from distdbg.runtime.backends.gpu import chunks, pinned_memory, transfer
from distdbg.runtime.backends.gpu.driver import Driver
from distdbg.runtime.backends.gpu.pinned_memory import Use, pin_if_possible, try_pin, used
from distdbg.runtime.backends.staging import StagedCall
from tests.unit.gpu.moving import move, run
from tests.unit.gpu.stand_in import Machine
from tests.unit.nccl.stand_in import StandInArray

CHUNK = 4096
NBYTES = 10 * CHUNK
#: Of one message.
PLACES = 3 * CHUNK


@pytest.fixture(autouse=True)
def _room_for_two(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.collect()
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", CHUNK)
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")
    monkeypatch.setenv("DISTDBG_PINNED_NBYTES", str(3 * 2 * PLACES))
    monkeypatch.setattr(transfer, "PATIENCE_NS", 3_600_000_000_000)
    assert (used(Use.SENDS), used(Use.RECEIVES)) == (0, 0)
    yield
    gc.collect()
    assert (used(Use.SENDS), used(Use.RECEIVES)) == (0, 0)


def test_messages_wait_for_room_and_all_arrive(machine: Machine) -> None:
    most = dict.fromkeys(Use, 0)

    def look(nbytes: int) -> None:
        for use in Use:
            most[use] = max(most[use], used(use))

    machine.on_copy = look

    def program() -> list[int]:
        rank = dist.get_rank()
        arrays = [machine.array(np.full(NBYTES, 1 + n * (1 - rank)), np.uint8) for n in range(6)]
        start = dist.isend if rank == 0 else dist.irecv
        works: list[Any] = [start(x, 1 - rank, tag=n) for n, x in enumerate(arrays)]
        for work in works:
            work.wait(timedelta(seconds=25))
        return [int(x.host.min()) for x in arrays]

    assert run(program) == [[1, 2, 3, 4, 5, 6]] * 2
    assert 0 < most[Use.SENDS] <= 2 * PLACES
    assert 0 < most[Use.RECEIVES] <= 2 * PLACES


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_that_gets_no_room_says_what_it_waited_for(
    machine: Machine, is_async: bool
) -> None:
    driver = machine.driver()
    taken = [try_pin(driver, PLACES, Use.RECEIVES), try_pin(driver, PLACES, Use.RECEIVES)]

    def program() -> str:
        x = machine.array(np.ones(NBYTES), np.uint8)
        with pytest.raises(OpTimeout) as late:
            move(x, 0.4, is_async=is_async)
        return str(late.value)

    reported = run(program)
    wanted = f"it waited for pinned memory for messages that are received: {2 * PLACES} of {2 * PLACES} bytes"
    assert wanted in reported[1], reported
    assert "DISTDBG_PINNED_NBYTES" in reported[1]
    taken.clear()


def test_a_message_that_the_room_waits_for_does_without(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All room is of a message whose stream goes on only after the other one has arrived."""
    monkeypatch.setenv("DISTDBG_PINNED_NBYTES", str(3 * PLACES))
    monkeypatch.setattr(transfer, "PATIENCE_NS", 50_000_000)
    machine.takes_any_memory = True

    def program() -> list[int]:
        rank = dist.get_rank()
        arrays = [machine.array(np.full(NBYTES, 1 + n * (1 - rank)), np.uint8) for n in range(2)]
        start = dist.isend if rank == 0 else dist.irecv
        go_on = machine.hold() if rank == 0 else None
        works: list[Any] = [start(arrays[0], 1 - rank, tag=0)]
        machine.let_go()
        works.append(start(arrays[1], 1 - rank, tag=1))
        works[1].wait(timedelta(seconds=20))
        if go_on is not None:
            go_on.set()
        works[0].wait(timedelta(seconds=20))
        return [int(x.host.min()) for x in arrays]

    assert run(program) == [[1, 2]] * 2


def test_room_of_messages_that_have_failed_is_there_when_the_device_is_done(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have all of it."""
    is_hanging = threading.Event()

    def on_copy(nbytes: int) -> None:
        if is_hanging.is_set() and dist.get_rank() == 1:
            machine.hangs.add(1)

    machine.on_copy = on_copy

    def program() -> list[int]:
        rank = dist.get_rank()
        for _ in range(2):
            is_hanging.set()
            pg = dist.new_group()
            x = machine.array(np.ones(NBYTES), np.uint8)
            begin: Any = dist.irecv if rank else dist.isend
            work = begin(x, 1 - rank, group=pg, timeout=timedelta(seconds=0.3 if rank else 20))
            with pytest.raises(DistError):
                work.wait()
            dist.barrier()
            machine.hangs.clear()
            is_hanging.clear()
            dist.destroy_process_group(pg)
            dist.barrier()
        x = machine.array(np.full(NBYTES, 2 - rank), np.uint8)
        move(x, 20.0)
        return [int(x.host.min())]

    assert run(program) == [[2]] * 2


@pytest.mark.parametrize("value", ["lots", "1e9"])
def test_a_limit_that_is_no_number_is_told_when_the_group_is_made(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("DISTDBG_PINNED_NBYTES", value)
    try:
        with pytest.raises(ConfigError, match="DISTDBG_PINNED_NBYTES"):
            run(dist.barrier)
    finally:
        monkeypatch.undo()


class Counting:
    """In a Driver's place."""

    def __init__(self) -> None:
        self.nbytes: list[int] = []

    def pinned(self, nbytes: int) -> Any:
        self.nbytes.append(nbytes)
        return np.zeros(nbytes, np.uint8)


def test_other_ops_take_memory_that_is_not_pinned_where_there_is_no_room() -> None:
    counting: Any = Counting()
    driver: Driver = counting
    first = pin_if_possible(driver, 2 * PLACES)
    second = pin_if_possible(driver, CHUNK)
    assert (len(first), len(second), counting.nbytes) == (2 * PLACES, CHUNK, [2 * PLACES])
    del first
    assert len(pin_if_possible(driver, CHUNK)) == CHUNK
    assert counting.nbytes == [2 * PLACES, CHUNK]


def test_one_message_has_room_however_large_it_is() -> None:
    counting: Any = Counting()
    large = try_pin(counting, 100 * PLACES, Use.SENDS)
    assert large is not None
    assert try_pin(counting, 1, Use.SENDS) is None
    assert try_pin(counting, 1, Use.RECEIVES) is not None
    assert f"{100 * PLACES} of {2 * PLACES} bytes" in pinned_memory.words(Use.SENDS)


class PinnedByCupy:
    """CuPy's module for it: how many bytes each array had that it made."""

    def __init__(self) -> None:
        self.nbytes: list[int] = []

    def empty_pinned(self, shape: Any, dtype: Any) -> Any:
        made = np.empty(shape, dtype)
        self.nbytes.append(made.nbytes)
        return made


def test_ops_that_go_through_the_host_whole_keep_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pinned = PinnedByCupy()
    monkeypatch.setitem(sys.modules, "cupyx", pinned)  # type: ignore[arg-type]  # a stand-in
    x = StandInArray(np.ones(PLACES, np.uint8))
    calls = [StagedCall(Call(Kind.ALL_REDUCE, (), (x,))) for _ in range(3)]
    assert pinned.nbytes == [PLACES, PLACES]  # and the third one is not pinned
    assert used(Use.OPS) == 2 * PLACES
    calls.pop()
    assert used(Use.OPS) == 2 * PLACES
    calls.pop()
    assert used(Use.OPS) == PLACES
    calls.append(StagedCall(Call(Kind.ALL_REDUCE, (), (x,))))
    assert pinned.nbytes == [PLACES] * 3
    calls.clear()
    assert used(Use.OPS) == 0


def test_tensors_that_go_through_the_host_whole_keep_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Tensor:
        is_cuda = True
        shape, nbytes, dtype = (PLACES,), PLACES, "uint8"

    are_pinned: list[bool] = []

    def empty(shape: Any, dtype: Any, pin_memory: bool) -> Any:
        are_pinned.append(pin_memory)
        return np.empty(shape, np.uint8)

    torch: Any = ModuleType("torch")
    torch.Tensor, torch.empty = Tensor, empty
    torch.cuda = SimpleNamespace(is_current_stream_capturing=bool)
    monkeypatch.setitem(sys.modules, "torch", torch)
    calls = [StagedCall(Call(Kind.ALL_REDUCE, (), (Tensor(),))) for _ in range(3)]
    assert are_pinned == [True, True, False]
    assert used(Use.OPS) == 2 * PLACES
    calls.clear()
    assert used(Use.OPS) == 0
