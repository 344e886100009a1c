"""Staging: the array of one message through pinned memory, in pieces of a chunk each.

    a send   the device copies the next pieces down while native code sends one
    a recv   the device copies one up while the next ones come

Native code counts what has come or left, and this what the device has copied (native/core/p2p_pieces.cpp).
The piece that begins at byte k * piece is in place k % places until both are done with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from distdbg.native import Group, Message, View
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.gpu import chunks
from distdbg.runtime.backends.gpu.held_copies import hold

if TYPE_CHECKING:
    from distdbg.runtime.backends.gpu.driver import Bytes, Driver

#: Pieces that are on their way at once.
PLACES: Final = 3


def memory_for(message: Message, buffer: DeviceBuffer) -> int:
    """How much pinned memory a message wants."""
    piece = _piece(message, buffer)
    return min(PLACES, -(-buffer.nbytes // piece)) * piece


def _piece(message: Message, buffer: DeviceBuffer) -> int:
    """The receiver has said how long a piece is, if that matters to it."""
    return message.piece_nbytes or min(buffer.nbytes, chunks.CHUNK_NBYTES)


class _Copy(NamedTuple):
    nbytes: int
    #: The event after it.
    end: Any


class Staging:
    """Of one message that wants memory of the host."""

    def __init__(
        self,
        driver: Driver,
        group: Group,
        message: Message,
        buffer: DeviceBuffer,
        stream: Any,
        ready: Any,
        memory: Bytes,
    ) -> None:
        """`ready`: the event after which the array may be read, or written. `memory`: see memory_for()."""
        self._driver = driver
        self._group = group
        self._message = message
        self._buffer = buffer
        self._stream = stream
        #: None: it has passed. Nothing is queued before, since that would hold up what other messages have
        #: in the stream, and those may be what the program is waiting for.
        self._ready: Any = ready
        self._is_send = message.want == "data"
        self._piece = _piece(message, buffer)
        self._memory = memory
        #: In bytes: given to the device, and done by it.
        self._queued = 0
        self._served = 0
        self._copies: deque[_Copy] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether the device has something of it, or is to come to what it waits for."""
        return self._ready is not None or bool(self._copies)

    @property
    def awaits_program(self) -> bool:
        """Whether the program's own stream has yet to come to the call."""
        return self._ready is not None

    def begin(self, *, cannot_open: bool) -> None:
        """Give native code the places."""
        self._group.give(self._message, View(self._memory, True), self._piece, cannot_open)
        self.step()

    def step(self) -> None:
        """See how far both are, and go on."""
        if self._ready is not None and self._driver.has_passed(self._ready):
            self._driver.wait_for(self._stream, self._ready.ptr)
            self._ready = None
        while self._copies and self._driver.has_passed(self._copies[0].end):
            self._served += self._copies.popleft().nbytes
        moved = self._group.move_pieces(self._message, self._served)
        while self._queued < self._may_be_queued(moved):
            self._queue()
            if not self._is_send:
                moved = self._group.move_pieces(self._message, self._served)

    def release(self) -> None:
        """The message has ended, and the device may have something of it still."""
        if self._copies and not self._has_let_go():
            self._keep([self._copies[-1].end])
        self._copies.clear()
        self._ready = None

    def free(self) -> None:
        """Native code has let go of the memory; others may wait for it, and a Work outlives its message."""
        self._memory = self._memory[:0].copy()

    def _may_be_queued(self, moved: int) -> int:
        if self._ready is not None:
            return 0
        return min(self._buffer.nbytes, moved + len(self._memory)) if self._is_send else moved

    def _queue(self) -> None:
        driver, buffer, at = self._driver, self._buffer, self._queued
        nbytes = min(self._piece, buffer.nbytes - at)
        host = self._memory.ctypes.data + at % len(self._memory)
        array = buffer.address + at
        target, source = (host, array) if self._is_send else (array, host)
        try:
            driver.copy(target, source, nbytes, self._stream)
            self._queued += nbytes
            if not self._is_send and self._queued == buffer.nbytes and buffer.finish is not None:
                with self._stream:
                    buffer.finish()  # into an array that is not in one piece
            self._copies.append(_Copy(nbytes, driver.event(self._stream)))
        except BaseException:
            self._keep([])  # nobody will know when the device has done it
            raise

    def _keep(self, events: Sequence[Any]) -> None:
        """Both sides of a copy."""
        hold(self._driver, events, (self._memory, self._buffer))

    def _has_let_go(self) -> bool:
        try:
            return self._driver.has_passed(self._copies[-1].end)
        except Exception:  # noqa: BLE001 - of CUDA, which may have ended: nothing is known
            return False
