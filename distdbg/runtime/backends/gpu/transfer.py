"""Transfer: one message of an array on a GPU, and what is copied for it. Used by one thread at a time.

begin()     what it wants, queued in the group's stream of the device
advance()   asks the device, and tells native code when that is done
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from distdbg.log.logs import get_logger
from distdbg.native import Form, Group, Message
from distdbg.ops.call import Call
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.gpu.message_offer import unpack
from distdbg.runtime.backends.gpu.message_pieces import Staging

if TYPE_CHECKING:
    from distdbg.errors import DistError
    from distdbg.runtime.backends.gpu.driver import Driver
    from distdbg.runtime.backends.gpu.message_memory import OpenedMemory, OpenedOffer, SharedEvent
    from distdbg.runtime.backends.gpu.message_offer import MessageOffer

_log = get_logger("runtime")

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
        #: Where the message goes through the host.
        self._staging: Staging | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the device has something of it, or is to come to what it waits for."""
        staging = self._staging
        if staging is not None:
            return staging.is_busy
        return self._end is not None or self._is_waiting

    def add_words(self, error: DistError) -> None:
        """Say what its copies have waited for, where that is not the device itself."""
        staging = self._staging
        if staging is not None and staging.awaits_program:
            error.details.insert(0, _OWN_ARRAY)
        elif self._is_waiting:
            error.details.insert(0, _OWN_ARRAY if self._awaits_program else _THEIR_ARRAY)

    def begin(self) -> None:
        """Do, or queue, what the message wants."""
        message = self._posted()
        with self._driver.on_device(self.buffer.device):
            if message.want == "take":
                self._take(message)
            elif message.want in ("memory", "data"):
                self._stage(message, cannot_open=False)
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
            elif self._is_waiting:
                self._start()
        return not self.is_busy

    def drop(self) -> None:
        """Nothing is told to native code any more: the message has failed."""
        self._end = None
        self._is_waiting = False
        if self._staging is not None:
            self._staging.release()

    def release(self) -> None:
        """The message has ended: nothing of another rank's memory is needed any more."""
        self._is_waiting = False
        found, self._found = self._found, None
        if found is not None:
            self._opened.release(found)
        if self._staging is not None:
            self._staging.release()

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
            self._stage(message, cannot_open=True)
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
        if self.buffer.finish is not None:
            with stream:
                self.buffer.finish()  # into an array that is not in one piece
        self._end = driver.timed_event(stream)

    def _took(self) -> None:
        ran_ns = self._driver.ran_ns(self._begin, self._end)
        self._end = None
        self.release()
        self._group.took(self._posted(), ran_ns)

    def _stage(self, message: Message, *, cannot_open: bool) -> None:
        self._staging = Staging(
            self._driver, self._group, message, self.buffer, self._stream, self._ready
        )
        self._staging.begin(cannot_open=cannot_open)

    def _posted(self) -> Message:
        assert self.message is not None  # nobody serves one that was not
        return self.message
