"""QueuedEngine: the record of ops that go on after their call has returned, on a device.

Such an op is begun in the record when it is called, started when the device has done what comes before it,
and ended by whoever notices the event at its end. So a sync op that returned at once is open until the device
has done it.
"""

from __future__ import annotations

from functools import partial

from distdbg.errors import DistError, InternalError
from distdbg.native import RecordedOp, Recorder
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Pending
from distdbg.record.format import Flag, Status
from distdbg.runtime.arrays.capture import refuse_wait
from distdbg.runtime.backends.nccl.device_side import DeviceSide
from distdbg.runtime.backends.nccl.events import event_reader
from distdbg.runtime.backends.nccl.library import load
from distdbg.runtime.backends.recorded import RecordedEngine
from distdbg.runtime.handles.waits import waiting_for
from distdbg.runtime.handles.work import NO_DEADLINE


class QueuedEngine(RecordedEngine):
    """Implements Engine around one whose ops bring a DeviceSide."""

    def run(self, call: Call) -> int:
        """Queue `call`."""
        other = self._other_rules()
        if other is not None:
            return other.run(call)
        side, op = _side_of(call), self._begin(call, 0)
        self._note(side, op, call)
        try:
            return self.inner.run(call)
        except BaseException as error:
            side.end(error)
            raise

    def submit(self, call: Call) -> Pending:
        """Queue `call`; the handle's wait does not end the op in the record."""
        other = self._other_rules()
        if other is not None:
            return other.submit(call)
        side, op = _side_of(call), self._begin(call, int(Flag.ASYNC))
        self._note(side, op, call)
        try:
            name = call.name or call.kind.label
            return QueuedPending(self.inner.submit(call), side, op.number, self.recorder, name)
        except BaseException as error:
            side.end(error)
            raise

    def _note(self, side: DeviceSide, op: RecordedOp, call: Call) -> None:
        source = call.peer if call.kind is Kind.RECV else -1
        side.on_start = op.started
        side.on_end = partial(self._end, op, source)
        reader = event_reader(load().driver)
        if reader is not None:
            side.on_queued = lambda end: op.watch(reader, side.begin.ptr, end.ptr, source)
            side.stop_watching = op.stop_watching

    def _end(self, op: RecordedOp, source: int, error: BaseException | None) -> None:
        if error is None:
            op.ended(int(Status.OK), source)
        else:
            self.end(op, error)


class QueuedPending:
    """Implements Pending around another one."""

    __slots__ = ("_inner", "_name", "_recorder", "_side", "number")

    def __init__(
        self, inner: Pending, side: DeviceSide, number: int, recorder: Recorder, name: str
    ) -> None:
        self._inner = inner
        self._side = side
        self._recorder = recorder
        self.number = number
        self._name = name

    def done(self) -> bool:
        """Whether the op has ended."""
        self._refuse_in_capture()
        return self._inner.done()

    def wait(self, deadline_ns: int) -> None:
        """Wait as the group does; an op that failed before the device had it ends here in the record."""
        self._refuse_in_capture()
        try:
            with waiting_for(self._recorder, self.number, deadline_ns != NO_DEADLINE):
                self._inner.wait(deadline_ns)
        except DistError as error:
            if self._inner.done():
                self._side.end(error)
            raise

    def source_rank(self) -> int:
        """Hand it on."""
        return self._inner.source_rank()

    def _refuse_in_capture(self) -> None:
        # Before anybody inside takes the error for the op's.
        if self._side.is_open:
            refuse_wait(self._name, load().cupy, is_torchs=self._side.is_torchs)


def _side_of(call: Call) -> DeviceSide:
    side = call.side
    if not isinstance(side, DeviceSide):
        raise InternalError(f"{call.kind.label} came without its side on the device")
    return side
