"""Transfer: one message of an array on a GPU, and what is copied for it. Used by one thread at a time.

begin()     what it wants, queued in the group's stream of the device
advance()   asks the device, and tells native code when that is done
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from distdbg.log.logs import get_logger
from distdbg.native import Form, Group, Message
from distdbg.ops.call import Call, Kind
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.gpu.held_copies import hold, look
from distdbg.runtime.backends.gpu.message_offer import unpack
from distdbg.runtime.backends.gpu.message_pieces import Staging, memory_for
from distdbg.runtime.backends.gpu.pinned_memory import Use, not_pinned, try_pin, words

if TYPE_CHECKING:
    from distdbg.errors import DistError
    from distdbg.runtime.backends.gpu.driver import Driver
    from distdbg.runtime.backends.gpu.message_memory import OpenedMemory, OpenedOffer, SharedEvent
    from distdbg.runtime.backends.gpu.message_offer import MessageOffer

_log = get_logger("runtime")

#: So long a message waits for pinned memory. NOT MEASURED: longer than others take that no stream holds up.
PATIENCE_NS: int = 500_000_000

_OWN_ARRAY: Final = "no copy was begun: this program's stream had not reached the call"
_THEIR_ARRAY: Final = "no copy was begun: the sender's stream had not reached its call"


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
        #: Before that copy is queued; and whether for this program, and not for the sender's.
        self._is_waiting = False
        self._awaits_program = False
        #: Of the copy from the sender's memory, while the device has it.
        self._begin: Any = None
        self._end: Any = None
        self._copied: Any = None
        #: Whether that copy may be in progress, whatever became of the message.
        self._is_copying = False
        #: Where the message goes through the host.
        self._staging: Staging | None = None
        self._awaits_memory = False
        self._asked_ns = 0
        self._cannot_open = False
        #: What it waited for when it failed.
        self._why: str | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the device has something of it, or is to come to what it waits for."""
        staging = self._staging
        if staging is not None:
            return staging.is_busy
        return self._end is not None or self._is_waiting or self._awaits_memory

    def add_words(self, error: DistError) -> None:
        """Say what its copies have waited for, where that is not the device itself."""
        why = self._why or self._awaited()
        if why is not None:
            error.details.insert(0, why)

    def _awaited(self) -> str | None:
        if self._staging is not None:
            return _OWN_ARRAY if self._staging.awaits_program else None
        if self._awaits_memory:
            return f"no copy was begun: it waited for {words(self._use)}"
        if self._is_waiting:
            return _OWN_ARRAY if self._awaits_program else _THEIR_ARRAY
        return None

    def begin(self) -> None:
        """Do, or queue, what the message wants."""
        message = self._posted()
        with self._driver.on_device(self.buffer.device):
            if message.want == "take":
                self._take(message)
            elif message.want in ("memory", "data"):
                self._stage()
            elif self._staging is not None:
                self._staging.step()

    def advance(self) -> bool:
        """Whether the device is done with what it had; then native code was told."""
        with self._driver.on_device(self.buffer.device):
            if self._staging is not None:
                self._staging.step()
            elif self._end is not None:
                if self._driver.has_passed(self._end):
                    self._took()
            elif self._awaits_memory:
                self._stage()
            elif self._is_waiting:
                self._start()
        return not self.is_busy

    def drop(self) -> None:
        """Nothing is told to native code any more: the message has failed."""
        self._why = self._why or self._awaited()
        self._end = None
        self._is_waiting = self._awaits_memory = False
        if self._staging is not None:
            self._staging.release()

    def release(self) -> None:
        """The message has ended: nothing of another rank's memory is needed."""
        self._why = self._why or self._awaited()
        self._is_waiting = self._awaits_memory = False
        found, self._found = self._found, None
        if found is not None and self._is_copying:
            self._opened.hold(found)
            self._hold(found)
            look()
        elif found is not None:
            self._opened.release(found)
        if self._staging is not None:
            self._staging.release()
            self._staging.free()

    def leave(self) -> None:
        """The group is collected. Takes no lock: this thread may have it, or what its owner waits for."""
        found, self._found = self._found, None
        if found is not None:
            self._hold(found)
        if self._staging is not None:
            self._staging.release()

    def _hold(self, found: OpenedOffer) -> None:
        events = None
        if self._is_copying:
            events = [] if self._copied is None else [self._copied]
        hold(self._driver, events, self.buffer, partial(self._opened.release, found))

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
            self._cannot_open = True
            self._stage()
            return
        self._is_waiting = True
        self._start()

    def _start(self) -> None:
        """Queue the copy once both arrays are ready: before, it would hold up those of other messages."""
        driver, stream, found = self._driver, self._stream, self._found
        assert found is not None  # it was opened
        self._awaits_program = not driver.has_passed(self._ready)
        if self._awaits_program or not driver.has_passed_at(found.event):
            return
        self._is_waiting = False
        driver.wait_for(stream, self._ready.ptr)
        driver.wait_for(stream, found.event)
        self._begin = driver.timed_event(stream)
        driver.copy(self.buffer.address, found.address, self.buffer.nbytes, stream)
        self._is_copying = True
        if self.buffer.finish is not None:
            with stream:
                self.buffer.finish()  # into an array that is not in one piece
        self._end = self._copied = driver.timed_event(stream)

    def _took(self) -> None:
        ran_ns = self._driver.ran_ns(self._begin, self._end)
        self._end = None
        self._is_copying = False
        self.release()
        self._group.took(self._posted(), ran_ns)

    def _stage(self) -> None:
        """Begin with the pieces, when there is memory for them."""
        message = self._posted()
        look()  # failed messages may have what this one waits for
        nbytes = memory_for(message, self.buffer)
        memory = try_pin(self._driver, nbytes, self._use)
        if memory is None:
            now_ns = time.monotonic_ns()
            if not self._awaits_memory:
                self._awaits_memory, self._asked_ns = True, now_ns
            if now_ns - self._asked_ns < PATIENCE_NS:
                return
            memory = not_pinned(nbytes)
        self._awaits_memory = False
        self._staging = Staging(
            self._driver, self._group, message, self.buffer, self._stream, self._ready, memory
        )
        self._staging.begin(cannot_open=self._cannot_open)

    @property
    def _use(self) -> Use:
        return Use.SENDS if self.call.kind is Kind.SEND else Use.RECEIVES

    def _posted(self) -> Message:
        assert self.message is not None  # nobody serves one that was not
        return self.message
