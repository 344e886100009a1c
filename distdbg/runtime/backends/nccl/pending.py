"""NcclPending: an op that is queued on the device. To wait for it orders streams; the host goes on.

The op's end is an event, which the thread of watchdog.py looks at. So its record is written, and its arrays
are kept, for as long as the device has it, whoever waits or does not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from distdbg.errors import DistBackendError, DistError, OpTimeout
from distdbg.ops.call import Call, Kind
from distdbg.record.durations import duration_text
from distdbg.runtime.arrays.device_arrays import DeviceBuffer
from distdbg.runtime.backends.nccl.device_side import DeviceSide
from distdbg.runtime.backends.nccl.streams import Streams, has_passed
from distdbg.runtime.handles.work import NO_DEADLINE

if TYPE_CHECKING:
    from distdbg.control.clock import JobClock
    from distdbg.runtime.backends.nccl.ending import CommunicatorEnding
    from distdbg.runtime.backends.nccl.library import NcclLibrary
    from distdbg.runtime.backends.nccl.options import NcclOptions

#: Between two looks of a host that waits.
_LOOK_S: Final = 0.0005
#: The same of one that waits until NCCL has the op, when it is woken.
_QUEUED_S: Final = 0.02
#: How often the check looks after the peers.
_WATCH_NS: Final = 20_000_000


class NcclChannel(Protocol):
    """A communicator and its stream, as far as there are any: the group's or a pair's (pairs.py)."""

    @property
    def comm(self) -> Any: ...
    @property
    def streams(self) -> Streams | None: ...


class _Engine(Protocol):
    """What an op needs of the engine that queued it (engine.py)."""

    @property
    def name(self) -> str: ...
    @property
    def clock(self) -> JobClock: ...
    @property
    def library(self) -> NcclLibrary: ...
    @property
    def options(self) -> NcclOptions: ...
    @property
    def ending(self) -> CommunicatorEnding: ...
    @property
    def given_up(self) -> str | None: ...

    def order_after(self, pending: NcclPending) -> None:
        """Let this thread's stream wait for the op."""
        ...

    def check_communicator(self, channel: NcclChannel, what: str) -> None:
        """Raise what NCCL says of a communicator."""
        ...

    def failed_later(self, error: Exception, what: str, comm: Any) -> DistBackendError:
        """What is raised for an error of an op that was queued."""
        ...

    def forget(self, pending: NcclPending) -> None:
        """The op is over."""
        ...


class NcclPending:
    """Implements Pending; see distdbg/ops/engine.py."""

    __slots__ = (
        "_engine",
        "_error",
        "_found",
        "_is_over",
        "_limit_ns",
        "_lock",
        "_watched_ns",
        "call",
        "channel",
        "copies",
        "deadline_ns",
        "ended",
        "queued",
        "scratch",
        "side",
        "watch",
    )

    def __init__(
        self,
        engine: _Engine,
        channel: NcclChannel,
        call: Call,
        side: DeviceSide,
        limit_ns: int,
        slack_ns: int,
    ) -> None:
        self._engine = engine
        self.channel = channel
        self.call = call
        self.side = side
        self._limit_ns = limit_ns
        self.deadline_ns = engine.clock.now_ns() + limit_ns + slack_ns
        #: Protects the two below.
        self._lock = threading.Lock()
        self._is_over = False
        self._error: DistError | None = None
        self._watched_ns = 0
        #: What will end it, when the device has let go of its arrays.
        self._found: DistError | None = None
        #: The event after it; None: NCCL has not got all of it, or all of its block.
        self.ended: Any = None
        #: Set when NCCL has it or never gets it, where a thread calls NCCL for it.
        self.queued: threading.Event | None = None
        #: Memory that it needs beside its arrays; kept until the device is done with it.
        self.scratch: DeviceBuffer | None = None
        #: What is left to copy when NCCL has done all of it: target, source, bytes.
        self.copies: Sequence[tuple[int, ...]] = ()
        #: Asked while it runs; raises what must end it.
        self.watch: Callable[[], None] | None = None

    # ------------------------------------------------------------------------------ Pending

    def done(self) -> bool:
        """Whether the op has ended, well or badly; never blocks."""
        if self._is_over:
            return True
        # In this order: what was broken off has ended as well, but not before the group was given up; then
        # look() tells why.
        if self._has_ended() and self._engine.given_up is None:
            self.end(None)
        return self._is_over

    def wait(self, deadline_ns: int) -> None:
        """Let this thread's stream wait; with a deadline, or where that is chosen, block the host."""
        self._wait(deadline_ns, None)

    def wait_watched(self, watch: Callable[[], None]) -> None:
        """The same without a deadline; what `watch` raises ends the op."""
        self.watch = self.watch or watch
        self._wait(NO_DEADLINE, watch)

    def source_rank(self) -> int:
        """NCCL receives from a named rank alone."""
        return self.call.peer if self.call.kind is Kind.RECV else -1

    # ---------------------------------------------------------------------------- who looks

    def keep_watch(self, watch: Callable[[], None]) -> None:
        """Have the thread of the watchdog ask it as long as the op runs."""
        self.watch = watch

    def look(self) -> bool:
        """Look once, at the op and at what may end it; whether it is over. For the watchdog."""
        if self.done():
            return True
        if self._engine.given_up is not None:
            # Whoever is told may free the arrays: not before the device has let go of them.
            if self._engine.ending.is_over():
                self._engine.ending.hold(self)
                self.end(self._found or self._broken_by(self._engine.given_up))
            return self._is_over
        try:
            self.side.note_progress()
            now = time.monotonic_ns()
            if now - self._watched_ns < _WATCH_NS:
                return False
            self._watched_ns = now
            self._check()
        except DistError as error:
            self._found = error
            self._engine.ending.give_up(error.what, error)
            if self._engine.ending.is_over():
                self._engine.ending.hold(self)
                self.end(error)
        return self._is_over

    def wait_on_host(self) -> None:
        """Look until it is over; each op has a deadline."""
        while not self.look():
            time.sleep(_LOOK_S)  # the device wakes nobody

    def fail(self, error: Exception) -> None:
        """End it for an error that nobody has foreseen."""
        self.end(self._engine.failed_later(error, self.what, self.channel.comm))

    def _has_ended(self) -> bool:
        """Whether the device has passed the event."""
        if self.ended is None:
            return False
        try:
            return has_passed(self._engine.library.cupy, self.ended)
        except RuntimeError as error:  # CUDA's: what went wrong on the device is told at any call
            self.end(self._engine.failed_later(error, self.what, self.channel.comm))
            return False

    @property
    def is_over(self) -> bool:
        """Whether it is known to be over; nobody is asked."""
        return self._is_over

    def raise_error(self) -> None:
        """Raise what it was ended by, if it was."""
        if self._error is not None:
            self._engine.ending.deliver(self._error)
            raise self._error

    def _broken_by(self, reason: str) -> DistError:
        """What is told of an op in a group that was given up, for another op perhaps."""
        try:
            if self.watch is not None:
                self.watch()
        except DistError as error:
            return error
        return DistBackendError(f"{self.what} cannot end: {reason.splitlines()[0]}")

    def _check(self) -> None:
        """Raise what means that the op cannot end."""
        watch = self.watch
        if watch is not None:
            watch()
        if self._engine.clock.now_ns() >= self.deadline_ns:
            raise self.late(self._limit_ns, "NCCL did not carry it out")
        self._engine.check_communicator(self.channel, self.what)

    def end(self, error: DistError | None) -> None:
        """The op is over; the first to say so counts."""
        with self._lock:
            if self._is_over:
                return
            self._error = error
            self._is_over = True
        self._engine.forget(self)
        self.side.end(error)

    @property
    def what(self) -> str:
        """What messages call the op."""
        return f"{self.call.name or self.call.kind.label} on group '{self._engine.name}'"

    def late(self, waited_ns: int, state: str) -> OpTimeout:
        """What is raised when a time is over."""
        waited_s = waited_ns / 1e9
        return OpTimeout(
            f"{self.what} did not end within {duration_text(waited_s)}; {state}",
            kind=self.call.kind.label,
            group=self._engine.name,
            waited_s=waited_s,
        )

    def _wait(self, deadline_ns: int, watch: Callable[[], None] | None) -> None:
        blocks_host = (
            deadline_ns != NO_DEADLINE
            or self.call.kind is Kind.BARRIER
            or self._engine.options.is_blocking_wait
        )
        if blocks_host:
            self._block_host(deadline_ns, watch)
        elif not self.done():
            self._await_queued()
            if self._is_over:
                pass
            elif self._engine.given_up is None:
                self._engine.order_after(self)
            else:
                self.wait_on_host()  # a stream that waits for it would go on as if it had ended
        self.raise_error()

    def _await_queued(self) -> None:
        """Until there is an event that a stream can wait for; each op has a deadline."""
        queued = self.queued
        while queued is not None and not queued.wait(_QUEUED_S):
            if self.look():
                return

    def _block_host(self, deadline_ns: int, watch: Callable[[], None] | None) -> None:
        clock = self._engine.clock
        started_ns, watched_ns = clock.now_ns(), time.monotonic_ns()
        while not self.done():
            if self._engine.given_up is not None and self.look():
                return
            if watch is not None and time.monotonic_ns() - watched_ns > _WATCH_NS:
                watched_ns = time.monotonic_ns()
                watch()
            now = clock.now_ns()
            if now >= deadline_ns:
                raise self.late(now - started_ns, "it continues")
            time.sleep(_LOOK_S)  # the device wakes nobody
