"""Transfer: one message of an array on a GPU, and what is copied for it. Used by one thread at a time.

begin()     what it wants, queued in the group's stream of the device
advance()   asks the device, and tells native code when that is done
bring_back()    what came through the host, copied to the device when the message has ended
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from distdbg.errors import OpTimeout
from distdbg.log.logs import get_logger
from distdbg.native import Form, Group, Message, View
from distdbg.ops.call import Call, Kind
from distdbg.record.durations import duration_text
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.gpu.message_offer import unpack

if TYPE_CHECKING:
    from distdbg.runtime.backends.gpu.driver import Bytes, Driver
    from distdbg.runtime.backends.gpu.message_memory import OpenedMemory, OpenedOffer, SharedEvent
    from distdbg.runtime.backends.gpu.message_offer import MessageOffer

_log = get_logger("runtime")

#: How long a copy of what has come may take: nothing but a device that hangs takes so long.
_LIMIT_NS: Final = 60_000_000_000
_PAUSE_S: Final = 0.0002


class Transfer:
    """Of one message."""

    def __init__(
        self,
        driver: Driver,
        group: Group,
        opened: OpenedMemory,
        call: Call,
        buffer: DeviceBuffer,
        stream: Any,
        ready: Any,
        form: Form,
    ) -> None:
        self._driver = driver
        self._group = group
        self._opened = opened
        self.call: Final = call
        self.buffer: Final = buffer
        self._stream = stream
        #: After what the program had queued when it called.
        self._ready = ready
        self.form: Final = form
        #: Of a send.
        self.offer: MessageOffer | None = None
        self.event: SharedEvent | None = None
        self.message: Message | None = None
        #: What ended the group, for whoever waits for this message.
        self.error: BaseException | None = None
        self._found: OpenedOffer | None = None
        self._then: Callable[[], None] | None = None
        self._begin: Any = None
        self._end: Any = None
        #: Memory of the host, where the message goes through it.
        self._host: Bytes | None = None
        self._lock = threading.Lock()  # protects _is_back: the array is written once
        self._is_back = False

    @property
    def is_busy(self) -> bool:
        """Whether the device has something of it."""
        return self._then is not None

    def begin(self) -> None:
        """Do, or queue, what the message wants."""
        message = self._posted()
        with self._driver.on_device(self.buffer.device):
            if message.want == "take":
                self._take(message)
            elif message.want == "memory":
                self._give_memory(cannot_open=False)
            elif message.want == "data":
                self._host = self._driver.pinned(self.buffer.nbytes)
                self._queue(self._host.ctypes.data, self.buffer.address, self._give_data)

    def advance(self) -> bool:
        """Whether the device is done with it; then native code was told."""
        then = self._then
        if then is None:
            return True
        with self._driver.on_device(self.buffer.device):
            if not self._driver.has_passed(self._end):
                return False
            self._then = None
            then()
            return True

    def drop(self) -> None:
        """Nothing is told to native code any more: the message has failed."""
        self._then = None

    def release(self) -> None:
        """Nothing of another rank's memory is needed any more."""
        found, self._found = self._found, None
        if found is not None:
            self._opened.release(found)

    def end(self) -> None:
        """The message has ended, and nobody may ever wait for it: write its array if it went well."""
        if self._host is not None and self.call.kind is Kind.RECV:
            self._group.wait_message(self._posted(), 0, False)  # raises its error
            self.bring_back()

    def bring_back(self) -> None:
        """Copy what came through the host to the device; the message has ended well."""
        if self._host is None or self.call.kind is not Kind.RECV:
            return
        with self._lock:
            if self._is_back:
                return
            with self._driver.on_device(self.buffer.device):
                self._queue(self.buffer.address, self._host.ctypes.data, self._wrote)
                started_ns = time.monotonic_ns()
                while not self.advance():
                    waited_ns = time.monotonic_ns() - started_ns
                    if waited_ns > _LIMIT_NS:
                        waited = duration_text(waited_ns / 1e9)
                        raise OpTimeout(
                            f"recv did not end within {waited}: the GPU is not done",
                            kind="recv",
                            waited_s=waited_ns / 1e9,
                        )
                    time.sleep(_PAUSE_S)  # the device wakes nobody
            self._host = None

    # ---------------------------------------------------------------------------------- steps

    def _take(self, message: Message) -> None:
        owner, device = message.source, self.buffer.device
        try:
            self._found = self._opened.open(owner, device, unpack(message.description))
        except Exception as error:  # noqa: BLE001 - whatever it is, the message goes through the host
            _log.warning(
                "messages on a GPU go through the host: memory of rank %s of the group cannot be opened: %s",
                owner, str(error),
            )  # fmt: skip
            self._give_memory(cannot_open=True)
            return
        self._driver.wait_for(self._stream, self._ready.ptr)
        self._driver.wait_for(self._stream, self._found.event)
        self._queue(self.buffer.address, self._found.address, self._took)

    def _queue(self, target: int, source: int, then: Callable[[], None]) -> None:
        driver, stream = self._driver, self._stream
        driver.wait_for(stream, self._ready.ptr)
        self._begin = driver.timed_event(stream)
        driver.copy(target, source, self.buffer.nbytes, stream)
        if target == self.buffer.address and self.buffer.finish is not None:
            with stream:
                self.buffer.finish()  # into an array that is not in one piece
        self._end = driver.timed_event(stream)
        self._then = then

    def _took(self) -> None:
        ran_ns = self._driver.ran_ns(self._begin, self._end)
        self.release()
        self._group.took(self._posted(), ran_ns)

    def _give_memory(self, *, cannot_open: bool) -> None:
        self._host = self._driver.pinned(self.buffer.nbytes)
        self._group.give(self._posted(), View(self._host, True), cannot_open)

    def _give_data(self) -> None:
        self._group.give(self._posted(), View(self._host, False), False)

    def _wrote(self) -> None:
        self._is_back = True

    def _posted(self) -> Message:
        assert self.message is not None  # nobody serves one that was not
        return self.message
