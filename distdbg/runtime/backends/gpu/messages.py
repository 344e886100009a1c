"""GpuMessages: sends and recvs of arrays on a GPU that are taken from the sender's device.

Native code matches and checks them as all messages, and says what each wants (native/core/p2p_device.cpp):

    a recv   "take"      the sender is on a device of this host: copy, and say so
             "memory"    what was sent is data: it needs places in memory of the host
    a send   "data"      its receiver does not take it from the device: the same
    either   "pieces"    some have come into those places, or have left them (message_pieces.py)

A blocking message is served by the thread that waits for it, an asynchronous one by a thread of the group.
See docs/decisions/0042-a-message-that-is-taken-from-the-device.md.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, NoReturn

from distdbg.errors import DistBackendError, DistError, OpTimeout
from distdbg.log.logs import get_logger
from distdbg.native import Form, Group, Message, NativeError
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.record.forms import write_form
from distdbg.runtime.arrays.capture import let_others_capture, refuse_capture
from distdbg.runtime.arrays.device_arrays import DeviceBuffer, device_buffer, device_text
from distdbg.runtime.arrays.torch_arrays import is_plain, is_tensor
from distdbg.runtime.backends.gpu import held_copies
from distdbg.runtime.backends.gpu.message_memory import Offers, OpenedMemory
from distdbg.runtime.backends.gpu.message_offer import pack
from distdbg.runtime.backends.gpu.transfer import Transfer
from distdbg.runtime.backends.nccl.streams import current_stream
from distdbg.runtime.backends.pending import CpuPending

if TYPE_CHECKING:
    from distdbg.ops.engine import Pending
    from distdbg.runtime.backends.cpu import CpuEngine
    from distdbg.runtime.backends.gpu.driver import Driver

_log = get_logger("runtime")

#: The thread looks so often whether its group is gone.
_SLICE_NS: Final = 200_000_000
#: So long a host that waits for the device asks without a pause, then with one.
_AWAKE_NS: Final = 2_000_000
_PAUSE_S: Final = 0.0002
#: How often it looks after the peer meanwhile.
_LOOK_NS: Final = 20_000_000
_MOST_FORMS: Final = 1024
#: How long close() waits for the thread.
_PATIENCE_S: Final = 2.0


class GpuMessages:
    """Of one group of our own engine. Any thread."""

    def __init__(self, driver: Driver, group: Group, label: str, rank: int) -> None:
        self._driver = driver
        self._group = group
        self._label = label
        self._rank = rank
        self._offers = Offers(driver)
        self._opened = OpenedMemory(driver)
        #: Ranks that cannot open this one's memory.
        self._refused: set[int] = set()
        self._forms: dict[object, Form] = {}
        #: What the thread works in; it holds it no longer than that.
        self._context = copy_context()
        self._lock = threading.Lock()  # protects the rest
        #: By the device, and whether for sends: both directions at once.
        self._streams: dict[tuple[int, bool], Any] = {}
        #: Asynchronous ones that have not ended.
        self._in_flight: dict[Message, Transfer] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()

    def prepare(self, call: Call, *, offers: bool, stages: bool) -> Transfer | None:
        """The call as the thread that calls sees it; None: it has to go through the host as a whole.

        A send is offered from the device if it can be, or staged in pieces; a recv takes what comes.
        """
        held_copies.look()
        is_send = call.kind is Kind.SEND
        x = (call.inputs if is_send else call.outputs)[0]
        if is_tensor(x) and not is_plain(x):
            return None
        buffer = device_buffer(x, writable=not is_send)
        driver = self._driver
        with driver.on_device(buffer.device):
            stream = current_stream(driver.cupy, buffer.device, is_tensor(x))
            refuse_capture(call.kind.label, stream)
            transfer = Transfer(
                driver, self._group, self._opened, call, buffer, self._stream(buffer.device, is_send),
                driver.event(stream), self._form(is_send, buffer, device_text(x)),
            )  # fmt: skip
            if not is_send:
                return transfer
            if offers and call.peer not in self._refused:
                try:
                    transfer.offer, transfer.event = self._offers.make(call.peer, buffer, stream)
                except (RuntimeError, DistBackendError) as error:
                    _log.debug("rank %s offers nothing: %s", self._rank, str(error))
        return transfer if stages or transfer.offer is not None else None

    def run(self, engine: CpuEngine, transfer: Transfer) -> int:
        """Carry it out, blocking; a recv returns the group rank it came from."""
        call, group = transfer.call, self._group
        try:
            self._post(engine, transfer, is_async=False)
        except NativeError as error:
            if error.fault == "break":
                return engine.other_rules().run(call)
            engine.fail(call, error, group.started_ns)
        message = transfer.message
        assert message is not None  # it was posted
        try:
            while True:
                group.await_device(message)
                if message.done:
                    break
                transfer.begin()
                self._await(transfer)
        except NativeError as error:
            with with_reason(transfer):
                engine.fail(call, error, group.started_ns, message)
        except BaseException as error:  # noqa: BLE001 - raised again, when the group is told
            self._fail(transfer, error)
        finally:
            self._release(transfer)
        return message.source

    def submit(self, engine: CpuEngine, transfer: Transfer) -> Pending:
        """Start it; the group's thread serves it."""
        call, started_ns = transfer.call, time.monotonic_ns()
        try:
            with self._lock:  # the thread may meet it at once
                self._post(engine, transfer, is_async=True)
                assert transfer.message is not None  # it was posted
                self._in_flight[transfer.message] = transfer
                self._start_thread()
        except NativeError as error:
            if error.fault == "break":
                return engine.other_rules().submit(call)
            engine.fail(call, error, started_ns)
        pending = GpuMessagePending(engine, call, transfer, started_ns)
        engine.keep(pending)
        return pending

    def __del__(self) -> None:
        # Collected with messages in flight: what the device has still is kept, and no other's next.
        for transfer in self._in_flight.values():
            with suppress(Exception):  # of CUDA, which may have ended before
                self._context.run(transfer.leave)

    def close(self) -> None:
        """Let the thread end, and leave nothing open."""
        self._is_closed.set()
        if self._thread is not None:
            with suppress(NativeError):  # the group is closed, and its thread finds that
                self._group.wake_wanted()
            self._thread.join(_PATIENCE_S)
        held_copies.look()
        self._opened.close()

    # -------------------------------------------------------------------------------- posting

    def _post(self, engine: CpuEngine, transfer: Transfer, *, is_async: bool) -> None:
        call, buffer, offer = transfer.call, transfer.buffer, transfer.offer
        try:
            transfer.message = self._group.post_device(
                call.kind is Kind.SEND, buffer.nbytes, buffer.dtype, call.peer, call.tag,
                engine.limit_ns(call), is_async, transfer.form,
                b"" if offer is None else pack(offer),
            )  # fmt: skip
        except BaseException:
            if offer is not None:
                self._offers.take_back(call.peer, offer)
            self._release(transfer)
            raise

    def _form(self, is_send: bool, buffer: DeviceBuffer, device: str) -> Form:
        key = (is_send, buffer.dtype, buffer.shape, device)
        form = self._forms.get(key)
        if form is None:
            kind, dtype = Kind.SEND if is_send else Kind.RECV, Dtype(buffer.dtype).label
            text = write_form(
                name=kind.label, kind=kind.label, dtype=dtype, device=device,
                inputs=[buffer.shape] if is_send else (),
                outputs=() if is_send else [buffer.shape],
                nbytes=buffer.nbytes,
            )  # fmt: skip
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            form = self._forms[key] = Form(text, kind.label, int(kind), buffer.nbytes, 0, dtype)
        return form

    def _stream(self, device: int, is_send: bool) -> Any:
        key = (device, is_send)
        with self._lock:
            if key not in self._streams:
                self._streams[key] = self._driver.stream()
            return self._streams[key]

    def _release(self, transfer: Transfer) -> None:
        transfer.release()
        event, transfer.event = transfer.event, None
        if event is not None:
            self._offers.release(event)
        message = transfer.message
        if message is not None and message.is_refused and transfer.call.kind is Kind.SEND:
            self._refused.add(transfer.call.peer)

    # -------------------------------------------------------------------------------- serving

    def _await(self, transfer: Transfer) -> None:
        """Until what begin() has queued is done; NativeError: the message cannot end."""
        assert transfer.message is not None  # it was posted
        started_ns = looked_ns = time.monotonic_ns()
        while not transfer.advance():
            now_ns = time.monotonic_ns()
            if now_ns - looked_ns > _LOOK_NS:
                looked_ns = now_ns
                self._group.look_at_message(transfer.message)
            # The device wakes nobody.
            time.sleep(0.0 if now_ns - started_ns < _AWAKE_NS else _PAUSE_S)

    def _fail(self, transfer: Transfer, error: BaseException) -> NoReturn:
        """CUDA has failed, or this thread was interrupted: the group ends, on all ranks."""
        failed = self._end(transfer, error)
        if failed is error:
            raise error
        raise failed from error

    def _end(self, transfer: Transfer, error: BaseException) -> BaseException:
        what = f"{transfer.call.kind.label} on group '{self._label}'"
        reported: BaseException = error
        if isinstance(error, DistError):
            why = error.what
        elif isinstance(error, Exception):
            why = f"{what} failed on the GPU: {type(error).__name__}: {error}".splitlines()[0]
            reported = DistBackendError(why)
        else:
            why = f"{what} was interrupted"
        transfer.error = reported  # before anybody can hear of the end
        with suppress(NativeError):  # what it is given up for says more
            self._group.abort(why[:200])
            if transfer.message is not None:
                self._group.look_at_message(transfer.message)  # which lets go of it
        return reported

    def _start_thread(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(
            target=_serve, args=(weakref.ref(self), self._group.wanted_messages()), daemon=True,
            name="distdbg-gpu-messages",
        )  # fmt: skip
        self._thread.start()

    def go_on(self, message: Message | None, copying: list[Transfer]) -> None:
        """Serve one that wants something, and those that the device has."""
        self._context.run(self._go_on, message, copying)

    def _go_on(self, message: Message | None, copying: list[Transfer]) -> None:
        if message is not None:
            self._meet(message, copying)
        for transfer in list(copying):
            self._try(transfer, transfer.advance)
            if not transfer.is_busy:
                copying.remove(transfer)

    def _meet(self, message: Message, copying: list[Transfer]) -> None:
        """One of the asynchronous messages wants something, or has ended."""
        with self._lock:
            transfer = self._in_flight.get(message)
        if transfer is None:
            return
        if message.done:
            with self._lock:
                del self._in_flight[message]
            if transfer in copying:
                copying.remove(transfer)
            self._release(transfer)
            return
        self._try(transfer, transfer.begin)
        if transfer.is_busy and transfer not in copying:
            copying.append(transfer)

    def _try(self, transfer: Transfer, step: Callable[[], object]) -> None:
        try:
            step()
        except NativeError:  # the group is broken, and so the message ends
            transfer.drop()
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for its Work
            self._end(transfer, error)
            transfer.drop()

    @property
    def is_over(self) -> bool:
        """Whether the thread has nothing to do any more."""
        return self._is_closed.is_set()


@contextmanager
def with_reason(transfer: Transfer) -> Iterator[None]:
    """A timeout raised in this block says what the message's copies waited for."""
    try:
        yield
    except OpTimeout as error:
        transfer.add_words(error)
        raise


class GpuMessagePending(CpuPending):
    """An asynchronous message of an array on a GPU."""

    __slots__ = ("_transfer",)

    def __init__(self, engine: CpuEngine, call: Call, transfer: Transfer, started_ns: int) -> None:
        assert transfer.message is not None  # it was posted
        super().__init__(engine, call, transfer.message, (), started_ns)
        self._transfer = transfer

    def wait(self, deadline_ns: int) -> None:
        """Wait for the end; what CUDA said of it is raised before what that led to."""
        try:
            with with_reason(self._transfer):
                super().wait(deadline_ns)
        except DistError as error:
            failed = self._transfer.error
            if failed is None or not self.handle.done:
                raise
            raise failed from error


def _serve(ref: weakref.ref[GpuMessages], wanted: Group.WantedMessages) -> None:
    """The thread. It holds nothing but native memory while it waits, so that a group can be collected."""
    let_others_capture()
    try:
        _serve_until_closed(ref, wanted)
    finally:
        held_copies.look()  # where the group was collected, perhaps nobody else ever does


def _serve_until_closed(ref: weakref.ref[GpuMessages], wanted: Group.WantedMessages) -> None:
    copying: list[Transfer] = []
    while True:
        try:
            message = wanted.next(0 if copying else _SLICE_NS)
        except NativeError:  # this rank has left the group
            return
        if message is None and copying:
            time.sleep(_PAUSE_S)  # the device wakes nobody
        messages = ref()
        if messages is None or (message is None and not copying and messages.is_over):
            return
        messages.go_on(message, copying)
        del messages, message
