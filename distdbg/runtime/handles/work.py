"""Work: the handle of an op that was started with async_op=True."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

from distdbg.control.clock import JobClock
from distdbg.errors import DistError, OpTimeout, UsageError
from distdbg.native import BegunOp, NativeError
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Pending, await_end
from distdbg.runtime.api.options import Timeout, seconds_or_none
from distdbg.runtime.arrays.device_arrays import is_on_device
from distdbg.runtime.handles.future import Future
from distdbg.runtime.handles.waits import has_failed, op_number, waiting_for

if TYPE_CHECKING:
    from distdbg.runtime.backends.pending import CpuPending
    from distdbg.runtime.groups.group_state import GroupState
    from distdbg.runtime.latent_errors.unwaited import StartedOp

import sys
from copy import copy
from functools import cache
from typing import NoReturn

NO_DEADLINE = 2**63 - 1

_NO_TIMEOUT = timedelta(0)


class WorkResult(IntEnum):
    """What get_future_result() yields; torch.distributed's numbers."""

    SUCCESS = 0
    TIMEOUT = 1
    COMM_ERROR = 2
    UNKNOWN = 100


def deadline_after(timeout: Timeout, clock: JobClock) -> int:
    """Turn a length into a point of job time; None, zero and less: no deadline."""
    if timeout is None:
        return NO_DEADLINE
    seconds = seconds_or_none(timeout)
    if not seconds:
        return NO_DEADLINE
    return min(NO_DEADLINE, clock.now_ns() + int(seconds * 1e9))


class Work:
    """One op in flight. Dropped without a wait, the op goes on and its arrays stay alive."""

    __slots__ = ("_call", "_future", "_group", "_public", "begun", "pending", "started")

    def __init__(self, group: GroupState, call: Call, pending: Pending) -> None:
        #: All there is where native code has made this; until it is unfolded, the rest is empty.
        self.begun: BegunOp | None = None
        self._group = group
        self._call = call
        self.pending = pending
        self._future: Future[list[Any]] | None = None
        #: The same as the user has it.
        self._public: Any = None
        #: Where it was started, until somebody has waited for it; None: nobody has to.
        self.started: StartedOp | None = None

    def __del__(self) -> None:
        try:
            begun = self.begun
        except AttributeError:  # it was never made
            return
        if begun is not None:
            if begun.is_over:
                return
            self._unfold()
        started = self.started
        if started is not None:
            started.drop()

    def _unfold(self) -> None:
        """Take what is needed for more than one wait without a limit that goes well."""
        begun = self.begun
        if begun is not None:
            begun.unfold()
            begun.hand_to(self)

    def hand_over(self) -> StartedOp | None:
        """Somebody else has to wait for the op from here on."""
        self._unfold()
        started, self.started = self.started, None
        return started

    def _forget(self) -> None:
        """A future knows from here on when the op has ended, and nobody knows when that is asked."""
        started = self.hand_over()
        if started is not None:
            started.end()

    def _waited(self) -> None:
        """Somebody has asked for the end of the op, and was told."""
        started, self.started = self.started, None
        if started is not None:
            started.waited()

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Block until the op has ended: True, or its error is raised.

        A positive `timeout` limits this wait alone: OpTimeout is raised and the op goes on.
        """
        try:
            begun = self.begun
            if begun is not None:
                failed: NativeError | None = None
                try:
                    if timeout is _NO_TIMEOUT and begun.wait():
                        return True
                except NativeError as error:
                    failed = error
                begun = None  # an error that is kept has this frame
                self._unfold()
                if failed is not None:
                    cast("CpuPending", self.pending).fail_wait(failed)
            if timeout is _NO_TIMEOUT:
                self.pending.wait(NO_DEADLINE)
            else:
                self.pending.wait(deadline_after(timeout, self._group.world.control))
        except BaseException:
            started = self.hand_over()
            if started is not None:
                started.failed()
            if self._future is not None and self.pending.done():
                self._end_future()
            raise
        if self._future is not None:
            self._end_future()
        started = self.started
        if started is not None:
            self.started = None
            started.waited()
        return True

    def synchronize(self) -> None:
        """Like wait(), which on a GPU orders the stream alone."""
        self.wait()

    def block_current_stream(self) -> None:
        """Have the current stream wait for an op on a GPU; host memory has no stream."""
        self._unfold()
        if any(is_on_device(array) for array in self._call.outputs):
            self.wait()
        self._forget()

    def is_completed(self) -> bool:
        """Return whether the op has ended, well or badly."""
        self._unfold()
        is_done = self.pending.done()
        if is_done:
            self._waited()
        return is_done

    def is_success(self) -> bool:
        """Return whether the op has ended well."""
        self._unfold()
        return self.pending.done() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Return the error of the ended op; None when it went well or has not ended."""
        self._unfold()
        if not self.pending.done():
            return None
        self._waited()
        try:
            self.pending.wait(NO_DEADLINE)
        except DistError as error:
            return error
        return None

    def result(self) -> list[Any]:
        """Return the output arrays of the ended op."""
        self._unfold()
        if not self.pending.done():
            raise UsageError("Work.result() was called before the op has ended; call wait() first")
        self._waited()
        self.pending.wait(NO_DEADLINE)
        return list(self._call.outputs)

    def source_rank(self) -> int:
        """Return the group rank that an ended recv got its message from."""
        self._unfold()
        if self._call.kind != Kind.RECV:
            raise UsageError(
                f"source_rank() is known for recv only, not for {self._call.kind.label}"
            )
        if not self.pending.done():
            raise UsageError("Work.source_rank() was called before the recv has ended")
        self._waited()
        return self.pending.source_rank()

    def get_future(self) -> Future[list[Any]]:
        """Return a future of the output arrays; a torch.futures.Future where torch is imported.

        It is complete when wait() has returned. Its callbacks run in the thread that completes it: one that
        waits for the op, or a background thread.
        """
        self._unfold()
        if self.started is not None:
            self._forget()
        if self._public is None:
            self._public = _for_torch(self._get_future())
        return cast(Future[list[Any]], self._public)

    def watch(self, on_end: Callable[[Future[list[Any]]], object]) -> None:
        """Call `on_end` with a future of the outputs when the op has ended, on the thread that notices."""
        self._unfold()
        if self.started is not None:
            self._forget()
        self._get_future().add_done_callback(on_end)

    def _get_future(self) -> Future[list[Any]]:
        if self._future is None:
            future: Future[list[Any]] = Future()
            future.say_wait = self._waiting
            self._future = future
            if self.pending.done():
                self._end_future()
            else:
                self._group.world.get_watcher().watch(self.pending, self._end_future)
        return self._future

    def _end_future(self) -> None:
        """Complete the future of an op that has ended, or never will."""
        future = self._future
        if future is None or future.done():
            return
        if not self.pending.done():
            text = "the process groups were destroyed before the op ended"
            future.offer(None, UsageError(text))
            return
        error = self.exception()
        future.offer(list(self._call.outputs) if error is None else None, error)

    def _waiting(self) -> AbstractContextManager[None]:
        return waiting_for(self._group.world.recorder, op_number(self.pending))

    def get_future_result(self) -> Future[int]:
        """Return a future of a WorkResult; it never raises."""
        self._unfold()
        if self.started is not None:
            self._forget()
        return cast(Future[int], _for_torch(self._get_future().then(_to_work_result)))

    def boxed(self) -> object:
        """Return self; torch needs a wrapper here to get the handle through its dispatcher."""
        return self

    @staticmethod
    def unbox(arg0: object) -> Work:
        """Return the Work that boxed() gave."""
        if not isinstance(arg0, Work):
            raise UsageError(f"unbox expects what boxed() returned, not {type(arg0).__name__}")
        return arg0

    def __repr__(self) -> str:
        self._unfold()
        state = "completed" if self.pending.done() else "in flight"
        return f"<Work {self._call.kind.label} on group {self._group.label!r}, {state}>"


class ManyPending:
    """Several ops seen as one: ended when all have ended; the first error is the error."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Pending]) -> None:
        self._parts = parts

    @property
    def number(self) -> int:
        """That of the first part that has not ended; 0: there is none, or it is not known."""
        return next((op_number(part) for part in self._parts if not part.done()), 0)

    def done(self) -> bool:
        """Return whether all parts have ended."""
        return all(part.done() for part in self._parts)

    def wait(self, deadline_ns: int) -> None:
        """Wait for all parts, also after one has failed, so that no buffer is left in use."""
        first: DistError | None = None
        for part in self._parts:
            try:
                part.wait(deadline_ns)
            except DistError as error:
                first = first or error
        if first is not None:
            raise first

    def await_end(self, deadline_ns: int) -> None:
        """Block until all parts have ended or the deadline has come; what they came to, wait() says."""
        for part in self._parts:
            await_end(part, deadline_ns)

    def has_failed(self) -> bool:
        """Return whether one of the parts is known to have ended with an error."""
        return any(has_failed(part) for part in self._parts)

    def source_rank(self) -> int:
        """Return -1: the parts have their own sources."""
        return -1


def _to_work_result(future: Future[list[Any]]) -> int:
    try:
        future.value()
    except OpTimeout:
        return WorkResult.TIMEOUT
    except UsageError:
        return WorkResult.UNKNOWN
    except DistError:
        return WorkResult.COMM_ERROR
    return WorkResult.SUCCESS


def _for_torch(future: Future[Any]) -> Any:
    """The same future as torch's type; itself as long as nobody imported torch."""
    futures = getattr(sys.modules.get("torch"), "futures", None)
    if futures is None or not hasattr(futures, "Future"):
        return future
    theirs = _class_of(futures.Future)()
    theirs.say_wait = future.say_wait

    def carry(ended: Future[Any]) -> None:
        try:
            value = ended.value()
        except Exception as error:  # noqa: BLE001 - it is raised where the future is waited for
            theirs._set_unwrap_func(_raise_copy)
            theirs.set_result(_copied(error))
        else:
            theirs.set_result(value)

    future.add_done_callback(carry)
    return theirs


def _copied(error: Exception) -> Exception:
    """For C++ to hold: an error that was raised holds frames, and they the future."""
    made = copy(error)
    made.__cause__ = error.__cause__
    return made


def _raise_copy(error: Exception) -> NoReturn:
    raise _copied(error)


@cache
def _class_of(base: Any) -> Any:
    class TorchFuture(base):  # type: ignore[misc]  # torch's class is not known here
        """torch.futures.Future; a wait for it is in the record."""

        def wait(self) -> Any:
            if self.done():
                return super().wait()
            with self.say_wait():
                return super().wait()

    return TorchFuture
