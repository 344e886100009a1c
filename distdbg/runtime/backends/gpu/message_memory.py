"""Memory and events of messages on a device: what a rank offers, and what it has open of others.

Unlike for collectives (exports.py, mappings.py) no two ranks know of the same offers: each offer has the
handles with it, and the receiver keeps open what it used last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from distdbg.errors import DistBackendError
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.gpu.driver import Driver
from distdbg.runtime.backends.gpu.message_offer import MOST_FREED, MessageOffer

#: Kept open at most of all peers, and remembered of what was offered to one.
MOST_OPEN: Final = 64


@dataclass(slots=True)
class SharedEvent:
    """One that other processes can wait for."""

    number: int
    device: int
    event: Any
    handle: bytes


class Offers:
    """Of one rank in one group: what it offers to others. Any thread."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()  # protects the rest
        #: By the receiver: bases by CUDA's number of the allocation; the one offered last is the last.
        self._offered: dict[int, OrderedDict[int, int]] = defaultdict(OrderedDict)
        self._handles: dict[int, bytes] = {}
        #: Freed, and told to nobody yet, by the receiver.
        self._freed: dict[int, list[int]] = defaultdict(list)
        self._events = 0
        self._idle: dict[int, list[SharedEvent]] = defaultdict(list)

    def make(
        self, peer: int, buffer: DeviceBuffer, stream: Any
    ) -> tuple[MessageOffer, SharedEvent]:
        """An offer of an array that may be read after what the stream has now; raises what CUDA says."""
        allocations = self._driver.allocations
        base, _ = allocations.allocation(buffer.address)
        number = allocations.buffer_id(base)
        if number is None:
            raise DistBackendError(f"CUDA has no number for the allocation at {base:#x}")
        with self._lock:
            handle = self._handles.get(number)
            if handle is None:
                handle = self._handles[number] = self._driver.memory_handle(base)
            event = self._take_event(buffer.device)
            event.event.record(stream)
            offered = self._offered[peer]
            for known, at in list(offered.items()):
                if allocations.buffer_id(at) != known:
                    del offered[known]
                    self._handles.pop(known, None)
                    self._freed[peer].append(known)
            offered[number] = base
            offered.move_to_end(number)
            if len(offered) > MOST_OPEN:
                self._handles.pop(offered.popitem(last=False)[0], None)
            reported = tuple(self._freed[peer][:MOST_FREED])
            del self._freed[peer][:MOST_FREED]
        offset = buffer.address - base
        return MessageOffer(number, offset, handle, event.number, event.handle, reported), event

    def take_back(self, peer: int, offer: MessageOffer) -> None:
        """It was not sent: the next one says again what was freed."""
        with self._lock:
            self._freed[peer] = [*offer.freed, *self._freed[peer]]

    def release(self, event: SharedEvent) -> None:
        """Its message has ended: the next one may use it."""
        with self._lock:
            self._idle[event.device].append(event)

    def _take_event(self, device: int) -> SharedEvent:
        idle = self._idle[device]
        if idle:
            return idle.pop()
        event = self._driver.shared_event()
        self._events += 1
        return SharedEvent(self._events, device, event, self._driver.event_handle(event))


@dataclass(slots=True)
class _Opened:
    address: int
    close: Callable[[int], None]
    users: int = 0
    is_gone: bool = False
    #: By a copy that has failed, and may be in progress.
    is_held: bool = False


#: Whose, which device of ours has it open, and the owner's number.
_Key = tuple[int, int, int]


@dataclass(slots=True)
class OpenedOffer:
    """Where an offer's array and event are in this process, until release()."""

    address: int
    event: int
    keys: list[tuple[OrderedDict[_Key, _Opened], _Key]] = field(default_factory=list)


class OpenedMemory:
    """Of one rank in one group: what it has open of the others. Any thread."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()  # protects the rest
        #: The one used last is the last.
        self._memory: OrderedDict[_Key, _Opened] = OrderedDict()
        self._events: OrderedDict[_Key, _Opened] = OrderedDict()

    def open(self, owner: int, device: int, offer: MessageOffer) -> OpenedOffer:
        """For the device, which is the thread's current one; raises what CUDA says."""
        driver = self._driver
        with self._lock:
            for number in offer.freed:
                self._drop(self._memory, (owner, device, number))
            found = OpenedOffer(0, 0)
            try:
                memory = self._use(
                    self._memory, (owner, device, offer.allocation), found,
                    driver.open_memory, offer.memory_handle, driver.close_memory,
                )  # fmt: skip
                found.event = self._use(
                    self._events, (owner, device, offer.event), found,
                    driver.open_event, offer.event_handle, driver.close_event,
                )  # fmt: skip
            except BaseException:
                self._release(found)
                raise
            found.address = memory + offer.offset
            return found

    def release(self, found: OpenedOffer) -> None:
        """The device is done with it."""
        with self._lock:
            self._release(found)

    def hold(self, found: OpenedOffer) -> None:
        """The device may have a copy of it that has failed: it stays open until release(), whatever ends."""
        with self._lock:
            for table, key in found.keys:
                table[key].is_held = True

    def close(self) -> None:
        """Leave nothing open but what is held."""
        with self._lock:
            for table in (self._memory, self._events):
                for key, one in list(table.items()):
                    if one.is_held and one.users:
                        one.is_gone = True
                    else:
                        self._close(table, key)

    def _use(
        self,
        table: OrderedDict[_Key, _Opened],
        key: _Key,
        found: OpenedOffer,
        open_handle: Callable[[bytes], int],
        handle: bytes,
        close: Callable[[int], None],
    ) -> int:
        one = table.get(key)
        if one is None:
            idle = [known for known, each in table.items() if not each.users]
            for known in idle[: max(0, len(table) + 1 - MOST_OPEN)]:
                self._close(table, known)
            one = table[key] = _Opened(open_handle(handle), close)
        table.move_to_end(key)
        one.users += 1
        found.keys.append((table, key))
        return one.address

    def _release(self, found: OpenedOffer) -> None:
        for table, key in found.keys:
            one = table[key]
            one.users -= 1
            if one.is_gone and not one.users:
                self._close(table, key)
        found.keys.clear()

    def _drop(self, table: OrderedDict[_Key, _Opened], key: _Key) -> None:
        one = table.get(key)
        if one is None:
            return
        one.is_gone = True
        if not one.users:
            self._close(table, key)

    def _close(self, table: OrderedDict[_Key, _Opened], key: _Key) -> None:
        one = table.pop(key)
        with self._driver.on_device(key[1]), suppress(RuntimeError):  # of CUDA: it is gone already
            one.close(one.address)
