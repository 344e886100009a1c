"""What failed copies leave to the device, while the garbage collector runs wherever it likes.

The GPU is a stand-in.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.ops.call import Call, Kind
from distdbg.runtime.backends.gpu import held_copies
from distdbg.runtime.backends.gpu.message_memory import OpenedMemory, OpenedOffer
from distdbg.runtime.backends.gpu.message_offer import MessageOffer
from distdbg.runtime.backends.gpu.messages import GpuMessages
from distdbg.runtime.backends.gpu.transfer import Transfer
from tests.unit.gpu.stand_in import Machine

HANDLE = b"1".ljust(64, b"\0")
OFFER = MessageOffer(7, 0, HANDLE, 1, HANDLE, ())


class Memory:
    """In the place of an array's buffer."""

    device = 0


class Device:
    """In a Driver's place: it does what a test wants when it is asked for something."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.when_asked: Callable[[], object] = bool
        self.is_done = False
        self.closed: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def has_passed(self, event: object) -> bool:
        self.when_asked()
        return self.is_done

    def open_memory(self, handle: bytes) -> int:
        self.when_asked()
        return 1

    def open_event(self, handle: bytes) -> int:
        return 2

    def close_memory(self, address: int) -> None:
        self.closed.append(address)

    close_event = close_memory


def forget_messages(
    driver: Any, opened: OpenedMemory, found: OpenedOffer, *, is_copying: bool = True
) -> Memory:
    """Messages of a group, to be collected while the device copies what was found into this memory."""
    group: Any = SimpleNamespace()
    messages: Any = GpuMessages(driver, group, "world", 0)
    memory: Any = Memory()
    transfer: Any = Transfer(
        driver, group, opened, Call(Kind.RECV, (), ()), memory, None, None, group
    )
    transfer._found, transfer._is_copying, transfer._copied = found, is_copying, object()
    messages._in_flight[object()] = transfer
    messages.itself = messages
    kept: Memory = memory
    return kept


def ends(step: Callable[[], object]) -> bool:
    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    thread.join(10.0)
    return not thread.is_alive()


@pytest.fixture
def device(machine: Machine) -> Any:
    gc.collect()
    return Device(machine.driver())


def let_go(device: Device, memory: Memory) -> None:
    """It is kept until the device is done, and no longer."""
    device.when_asked = bool
    held_copies.look()
    assert memory in [each.memory for each in held_copies._held]
    device.is_done = True
    held_copies.look()
    assert not held_copies._held


def test_messages_may_be_collected_while_somebody_looks(device: Any) -> None:
    held_copies.hold(device, [object()], object())
    memory = forget_messages(device, OpenedMemory(device), OpenedOffer(0, 0))
    device.when_asked = gc.collect
    assert ends(held_copies.look)
    let_go(device, memory)


def test_messages_may_be_collected_while_memory_is_opened(device: Any) -> None:
    opened = OpenedMemory(device)
    memory = forget_messages(device, opened, OpenedOffer(0, 0))
    device.when_asked = gc.collect
    assert ends(lambda: opened.open(1, 0, OFFER))
    opened.close()
    let_go(device, memory)


def test_messages_may_be_collected_while_another_thread_looks(device: Any) -> None:
    """That one waits for what this one has, or so it may be: nobody waits for it here."""
    held_copies.hold(device, [object()], object())
    memory = forget_messages(device, OpenedMemory(device), OpenedOffer(0, 0))
    is_looking, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        is_looking.set()
        assert go_on.wait(30.0)

    device.when_asked = pause
    looker = threading.Thread(target=held_copies.look, daemon=True)
    looker.start()
    assert is_looking.wait(10.0)
    has_ended = ends(gc.collect) and ends(held_copies.look)
    go_on.set()
    looker.join(10.0)
    assert has_ended
    let_go(device, memory)


@pytest.mark.parametrize("is_copying", [True, False])
def test_what_collected_messages_had_open_is_closed_when_the_device_is_done(
    device: Any, is_copying: bool
) -> None:
    opened = OpenedMemory(device)
    forget_messages(device, opened, opened.open(1, 0, OFFER), is_copying=is_copying)
    gc.collect()
    opened.release(opened.open(1, 0, replace(OFFER, allocation=8, freed=(7,))))
    held_copies.look()
    assert device.closed == ([] if is_copying else [1])
    device.is_done = True
    held_copies.look()
    assert device.closed == [1]
    assert not held_copies._held
