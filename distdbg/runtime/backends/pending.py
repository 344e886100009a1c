"""CpuPending: an op of the CPU engine that was started and not yet waited for."""

from __future__ import annotations

from _thread import RLock  # threading.RLock is a function around it, and as dear as the rest
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn, Protocol

from distdbg.errors import DistError
from distdbg.native import Group, Message, NativeError, Op, View
from distdbg.ops.call import Call

NO_DEADLINE = 2**63 - 1
_MAKING = RLock()


class _Engine(Protocol):
    """What an op needs of the engine that started it (cpu.py)."""

    group: Group
    compares_order: bool

    def forget(self, pending: CpuPending) -> None:
        """The op has ended."""
        ...

    def fail(
        self,
        call: Call,
        error: NativeError,
        started_ns: int,
        message: Message | None = None,
        goes_on: bool = False,
        started_at: str | None = None,
    ) -> NoReturn:
        """Raise the public error of an op that has failed."""
        ...

    def tell_suspicions(self) -> None:
        """Warn of what looks like a difference between ranks."""
        ...


class CpuPending:
    """An op in flight; see Pending in distdbg/ops/engine.py."""

    __slots__ = (
        "__dict__",
        "_call",
        "_engine",
        "_is_finished",
        "_started_ns",
        "handle",
        "how_changed",
        "views",
    )
    # It is made at every asynchronous op: what is seldom needed is an attribute of the class until then.
    _error: DistError | None = None
    #: Held by the one thread of those that wait which carries results back, or makes the error.
    _ending: RLock | None = None
    #: The user's line, where it is asked for.
    started_at: str | None = None

    def __init__(
        self,
        engine: _Engine,
        call: Call,
        handle: Op | Message,
        views: Sequence[View],
        started_ns: int | None = None,
    ) -> None:
        self._engine = engine
        self._call = call
        self.handle = handle
        #: Views of its inputs, then of its outputs, until its end was noticed.
        self.views = views
        #: None: a collective, whose handle knows when it was submitted.
        self._started_ns = started_ns
        self._is_finished = False
        #: Its arrays, under its hands: 'early', 'late', '' (see Group.how_changed in native code).
        self.how_changed = ""

    @property
    def number(self) -> int:
        """The number of the op in the record; 0: not recorded."""
        return self.handle.number

    def done(self) -> bool:
        """Whether the op has ended; what it brought is then in the user's arrays."""
        handle = self.handle
        if not handle.done:
            # A message moves on when somebody looks.
            group = self._engine.group
            if not (isinstance(handle, Message) and group.is_message_done(handle)):
                return False
        if not self._is_finished:
            with suppress(DistError):  # kept, and raised by wait()
                self.wait(NO_DEADLINE)
        return True

    def has_failed(self) -> bool:
        """Whether the op has ended with an error; looks at nothing but what is known here."""
        return self.handle.done and self.done() and self._error is not None

    def has_settled(self) -> bool:
        """Whether the op has ended and nothing more is needed from its group."""
        return self.handle.done and self.done()

    def wait(self, deadline_ns: int) -> None:
        """Block until the op has ended and raise its error; at the deadline, OpTimeout."""
        if self._error is None and not self._is_finished:
            # Written out for most: each further Python call costs a tenth of the wait.
            failed: NativeError | None = None
            handle, how_changed = self.handle, ""
            engine = self._engine
            try:
                if type(handle) is Message:
                    engine.group.wait_message(handle, deadline_ns, False)
                else:
                    how_changed = engine.group.wait_op(handle, deadline_ns)
            except NativeError as error:
                failed = error
            if failed is not None or not handle.is_plain:
                self._end(deadline_ns, failed, how_changed)
            elif not self._is_finished:
                # No other thread runs between this look and what follows. Who comes later, when the program
                # may have written to the arrays, leaves what the first has found.
                self.how_changed = how_changed
                self._is_finished = True
                self.views = ()
                engine.forget(self)
            if engine.compares_order:
                engine.tell_suspicions()
        if self._error is not None:
            raise self._error

    def note_end(self) -> None:
        """It has ended well, and somebody has waited for it in native code."""
        self._is_finished = True
        self.views = ()

    def fail_wait(self, failed: NativeError) -> None:
        """A wait for it in native code has failed; raise what it would have raised here."""
        self._end(NO_DEADLINE, failed, "")
        if self._error is not None:
            raise self._error

    def _end(self, deadline_ns: int, failed: NativeError | None, how_changed: str) -> None:
        if failed is not None and not self.handle.done:
            self._fail(failed, goes_on=True)
        with _MAKING:
            self._ending = self._ending or RLock()
        with self._ending:
            if self._error is not None or self._is_finished:
                return
            if failed is not None:
                # Asked once: an op that ends while this wait gives up has an outcome of its own.
                failed, how_changed = self._outcome(deadline_ns)
            if failed is not None:
                try:
                    self._fail(failed, goes_on=False)
                except DistError as public:
                    self._error = public
                    raise
            if not self.handle.is_plain:
                finish(self.views)
            self.how_changed = how_changed
            self._is_finished = True
            self.views = ()
            self._engine.forget(self)

    def _fail(self, error: NativeError, *, goes_on: bool) -> NoReturn:
        message = self.handle if isinstance(self.handle, Message) else None
        started_ns = self._started_ns
        if started_ns is None:
            started_ns = self.handle.submitted_ns
        self._engine.fail(self._call, error, started_ns, message, goes_on, self.started_at)

    def await_end(self, deadline_ns: int) -> None:
        """Block until the op has ended or the deadline has come; what it came to, wait() says.

        For who looks again and again: the error of a wait that gives up tells of all ranks, and costs much
        more than the wait.
        """
        with suppress(NativeError):
            self._await(deadline_ns)

    def _outcome(self, deadline_ns: int) -> tuple[NativeError | None, str]:
        """What an op that has ended failed with; None: it went well, and how its arrays were changed."""
        try:
            return None, self._await(deadline_ns)
        except NativeError as error:
            return error, ""

    def _await(self, deadline_ns: int) -> str:
        group, handle = self._engine.group, self.handle
        if isinstance(handle, Message):
            group.wait_message(handle, deadline_ns, False)
            return ""
        return group.wait_op(handle, deadline_ns)

    def source_rank(self) -> int:
        """The group rank a finished recv got its message from."""
        return self.handle.source if isinstance(self.handle, Message) else -1


def finish(views: Sequence[View]) -> None:
    """Carry results from stand-ins back to the arrays they stand in for."""
    for view in views:
        if view.finish is not None:
            view.finish()
