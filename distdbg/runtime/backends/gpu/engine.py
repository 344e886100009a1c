"""GpuEngine: ops on GPU arrays of one group of our own engine, one after the other.

An op of the program's own thread is carried out there, and comes back when the device is done with it, as ops
on arrays of the host do. Asynchronous ones are carried out by a thread of the group, in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from distdbg.errors import (
    CollectiveError,
    DistBackendError,
    DistError,
    MismatchError,
    PeerLost,
    RendezvousError,
    UsageError,
)
from distdbg.native import Group
from distdbg.ops.call import Call, Kind
from distdbg.ops.cuts import cut_blocks, is_input_cut, is_output_cut
from distdbg.ops.dtypes import Dtype
from distdbg.ops.engine import Pending
from distdbg.ops.reduce_op import RedOpType, ReduceOp, check_reduce
from distdbg.runtime.arrays.capture import let_others_capture, refuse_capture
from distdbg.runtime.arrays.device_arrays import DeviceBuffer, device_buffer
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.backends.checked.start_queue import StartQueue
from distdbg.runtime.backends.gpu import held_copies
from distdbg.runtime.backends.gpu.chunks import ChunkedOp, DeviceBlock, Pipeline, longest
from distdbg.runtime.backends.gpu.control_group import GpuControlGroup, OpHeader, not_all_came
from distdbg.runtime.backends.gpu.driver import Bytes, Driver
from distdbg.runtime.backends.gpu.exchanges import largest_block
from distdbg.runtime.backends.gpu.ipc import GpuOp, Ipc
from distdbg.runtime.backends.gpu.issued_record import IssuedRecord
from distdbg.runtime.backends.gpu.pending import GpuPending
from distdbg.runtime.backends.gpu.routes import GpuRoute
from distdbg.runtime.backends.nccl.streams import current_stream
from distdbg.runtime.backends.place_check import PlaceCheck, PlaceMeeting
from distdbg.runtime.backends.reported_difference import BROKEN
from distdbg.runtime.groups.levels import level_of
from distdbg.runtime.handles.work import NO_DEADLINE

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

#: So long a host that waits for the device asks without a pause, then with one.
_AWAKE_NS: Final = 2_000_000
_PAUSE_S: Final = 0.0002
#: How often it looks after the peers meanwhile.
_LOOK_NS: Final = 20_000_000
#: How long close() waits for ops of a group that is given up.
_PATIENCE_S: Final = 2.0


class GpuEngine:
    """Implements Engine; see distdbg/ops/engine.py."""

    def __init__(
        self,
        driver: Driver,
        group: ProcessGroup,
        store: Store,
        choose: Callable[[Call], GpuRoute],
        host: Group,
        on_break: Callable[[str], object],
    ) -> None:
        self._driver = driver
        self._group = group
        self._store = store
        #: The way of a call, which all ranks find alike.
        self._choose = choose
        #: Told when no op can run any more.
        self._on_break = on_break
        #: The memory of the group's ops on the host, where ranks find out that all come to one on a GPU.
        self._host = host
        self._places = PlaceCheck(host, group)
        self._clock = group.world.control
        self._timeout_ns = int(group.timeout_s * 1e9)
        self._lane = StartQueue(f"{group.label} (gpu)")
        #: One op at a time; also protects what follows.
        self._order = threading.RLock()
        self._control: GpuControlGroup | None = None
        self._pipeline: Pipeline | None = None
        self._ipc: Ipc | None = None
        self._device: int | None = None
        self._stream: Any = None
        self._seq = 0
        self._cause: str | None = None
        #: After what a failed op has left in the stream; empty: it is not known when that is done.
        self._left: list[Any] | None = None
        self._is_closed = False

    # ------------------------------------------------------------------------------- Engine

    def run(self, call: Call) -> int:
        """Carry out `call`, blocking."""
        one = self._begin(call)
        with self._order:
            if self._lane.is_idle:
                self._carry_out(one)
                return -1
        self._put(one).wait(NO_DEADLINE)  # behind the asynchronous ones
        return -1

    def submit(self, call: Call) -> Pending:
        """Start `call`; it is carried out by the group's thread."""
        return self._put(self._begin(call))

    def skip_number(self) -> None:
        """Other ranks have begun an op here that this one had on the host."""
        self._seq += 1

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        self._timeout_ns = int(timeout_s * 1e9)

    def set_level(self, level: int) -> None:
        """Hand it on."""
        if self._control is not None:
            self._control.set_level(level)

    def leave_because(self, why: str, at_once: bool) -> None:
        """Say why this rank is about to leave."""
        if self._control is not None:
            self._control.leave_because(why, at_once)

    def abort(self, reason: str) -> None:
        """Break the group: ops in flight end with an error on every rank."""
        self._cause = self._cause or reason
        if self._control is not None:
            self._control.abort(reason)

    def close(self) -> None:
        """Let what is in flight end (each op has a deadline), then leave nothing open."""
        if self._is_closed:
            return
        self._is_closed = True
        self._lane.drain(None if self._cause is None else _PATIENCE_S)
        self._lane.close(_PATIENCE_S)
        with self._order:
            if self._device is not None:
                with self._driver.on_device(self._device):
                    if self._ipc is not None:
                        self._close_ipc(self._ipc)
                    if self._pipeline is not None:
                        self._pipeline.close()
            if self._control is not None:
                self._control.close()

    # ------------------------------------------------------------------------------- one op

    def _begin(self, call: Call) -> _Prepared:
        """In the order of the program's calls, on the thread that calls."""
        one = self._prepare(call)
        one.place = self._places.begin(call, one.deadline_ns - one.started_ns)
        return one

    def _prepare(self, call: Call) -> _Prepared:
        """Look at the arrays on the thread that calls: its stream is the one to come after."""
        what = f"{call.name or call.kind.label} on group '{self._group.label}'"
        if self._is_closed:
            raise UsageError(f"{what}, which was destroyed")
        is_root = self._group.rank() == call.root
        outputs = [
            device_buffer(x, writable=call.kind is not Kind.BROADCAST or not is_root)
            for x in call.outputs
        ]
        is_in_place = call.inputs is call.outputs
        inputs = outputs if is_in_place else [device_buffer(x) for x in call.inputs]
        buffers = [*inputs, *outputs]
        dtype = Dtype(buffers[0].dtype)
        if call.op is not None:
            check_reduce(call.op, dtype)
        devices = {buffer.device for buffer in buffers}
        if self._device is not None:
            devices.add(self._device)
        if len(devices) > 1:
            raise UsageError(
                f"{what}: arrays on {', '.join(f'cuda:{n}' for n in sorted(devices))}; a group uses one GPU "
                "of each rank",
                hint="move the array, or make a group for the other GPU",
            )
        device = devices.pop()
        first = (*call.inputs, *call.outputs)[0]
        with self._driver.on_device(device):
            stream = current_stream(self._driver.cupy, device, is_tensor(first))
            refuse_capture(call.name or call.kind.label, stream)
            ready = self._driver.event(stream)
        limit_ns = self._timeout_ns if call.timeout_s is None else int(call.timeout_s * 1e9)
        now_ns = self._clock.now_ns()
        job = self._job(call, dtype, inputs, outputs)
        return _Prepared(
            call, job, inputs, outputs, self._choose(call), device, ready, now_ns, now_ns + limit_ns
        )

    def _job(
        self,
        call: Call,
        dtype: Dtype,
        inputs: Sequence[DeviceBuffer],
        outputs: Sequence[DeviceBuffer],
    ) -> ChunkedOp:
        size, kind = self._group.size(), call.kind
        is_root = self._group.rank() == call.root
        premul = call.op is not None and call.op.op is RedOpType.PREMUL_SUM
        return ChunkedOp(
            kind,
            dtype,
            _blocks(inputs, call.input_splits, size, is_input_cut(kind)),
            _blocks(outputs, call.output_splits, size, is_output_cut(kind)),
            is_in_place=inputs is outputs,
            factor=call.op.factor if call.op is not None and premul else None,
            reads=kind is not Kind.BROADCAST or is_root,
            writes=kind is not Kind.BROADCAST or not is_root,
        )

    def _put(self, one: _Prepared) -> GpuPending:
        pending = GpuPending(one.call, self._group.label, self._clock)

        def work() -> None:
            let_others_capture()
            try:
                with self._order:
                    self._carry_out(one)
            except BaseException as error:  # noqa: BLE001 - raised by whoever waits
                pending.end(error)
            else:
                pending.end(None)

        self._lane.put(work)
        return pending

    def _carry_out(self, one: _Prepared) -> None:
        what = f"{one.call.name or one.call.kind.label} on group '{self._group.label}'"
        if self._cause is not None and self._control is None:
            raise DistBackendError(f"{what} cannot run: {self._cause}")
        self._seq += 1
        try:
            if one.place is not None:
                one.place.wait(NO_DEADLINE)  # it has the op's own
            with self._driver.on_device(one.device):
                control = self._open(one)
                header = OpHeader(one.call, control.names, self._seq, control.descriptions)
                header.started_ns, header.deadline_ns = one.started_ns, one.deadline_ns
                header.on_start = partial(self._started, one.call)
                self._move(one, control, header)
                self._finish(one, partial(self._await, control, header))
        except Exception as error:  # noqa: BLE001 - told as what it means for the group
            self._hold(one)
            self._fail(what, error)
        except BaseException:
            self._hold(one)
            raise

    def _hold(self, one: _Prepared) -> None:
        """It has failed: what the device may have of it stays until it is done."""
        if self._stream is None:
            return
        try:
            with self._driver.on_device(one.device):
                self._left = [self._driver.event(self._stream)]
                if self._driver.has_passed(self._left[0]):
                    self._left = None
                    return
        except Exception:  # noqa: BLE001 - of CUDA, which may have ended: nothing is known
            self._left = []
        held_copies.hold(self._driver, self._left, (one.inputs, one.outputs))

    def _close_ipc(self, ipc: Ipc) -> None:
        if self._left is None:
            ipc.close()
            return
        device = self._device
        assert device is not None  # or there were no ops

        def close() -> None:
            with self._driver.on_device(device):
                ipc.close()

        held_copies.hold(self._driver, self._left, ipc, close)
        held_copies.look()

    def _started(self, call: Call) -> None:
        """All ranks have come."""
        if callable(call.side):
            call.side()

    def _fail(self, what: str, error: Exception) -> NoReturn:
        if isinstance(error, MismatchError):
            if isinstance(error, PeerLost):
                self._give_up(error.what)
            raise error
        if isinstance(error, DistError):
            self._give_up(error.what)
            raise error
        reported = f"{what} failed on the GPU: {type(error).__name__}: {error}".splitlines()[0]
        self._give_up(reported)
        raise DistBackendError(reported) from error

    def _move(self, one: _Prepared, control: GpuControlGroup, header: OpHeader) -> None:
        job = one.job
        wait = partial(self._await, control, header)
        if one.way is GpuRoute.IPC:
            if self._ipc is None:
                self._ipc = Ipc(self._driver, control, self._stream)
            if self._ipc.is_on and self._ipc.run(GpuOp(header, job, one.call.op, one.ready), wait):
                if isinstance(one.call.side, IssuedRecord):
                    one.call.side.measured(self._ipc.ran_ns)
                return

        def move(inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
            op = ReduceOp.SUM if job.factor is not None else one.call.op
            control.move(header, job.kind, inputs, outputs, job.dtype, 0 if op is None else op.code)

        if self._pipeline is None:
            self._pipeline = Pipeline(self._driver)
        nbytes = longest(job)
        if job.kind is Kind.ALL_TO_ALL:  # each rank knows its own blocks alone
            nbytes = largest_block(control, header, job)
        self._pipeline.run(
            job, control.size, nbytes, one.ready, move, wait, (one.inputs, one.outputs)
        )

    def _finish(self, one: _Prepared, wait: Callable[[Any], None]) -> None:
        """Copy into arrays that are not in one piece what was written for them."""
        left = [buffer.finish for buffer in one.outputs if buffer.finish is not None]
        if left:
            with self._stream:
                for finish in left:
                    finish()
            wait(self._driver.event(self._stream))

    def _open(self, one: _Prepared) -> GpuControlGroup:
        if self._control is None:
            try:
                control = GpuControlGroup(
                    self._store, self._group, one.deadline_ns, partial(self._look_at_host, one.call)
                )
            except RendezvousError as error:
                waited_s = (self._clock.now_ns() - one.started_ns) / 1e9
                raise not_all_came(error, one.call, self._group, waited_s) from error
            self._control = control
            control.set_level(level_of(self._group.world).value)
            self._device, self._stream = one.device, self._driver.stream()
            if self._cause is not None:
                control.abort(self._cause)
        return self._control

    def _look_at_host(self, call: Call) -> None:
        """Raise why the group cannot be used, while the first op on a GPU waits for the ranks."""
        cause = self._host.cause()
        if cause is not None:
            what = f"{call.name or call.kind.label} on group '{self._group.label}'"
            raise CollectiveError(
                f"{what} cannot run: {cause[4]}",
                kind=call.kind.label,
                group=self._group.label,
                details=[BROKEN],
            )

    def _await(self, control: GpuControlGroup, header: OpHeader, event: Any) -> None:
        """Block until the device has come to the event, and look after the peers meanwhile."""
        started_ns = looked_ns = time.monotonic_ns()
        while not self._driver.has_passed(event):
            now_ns = time.monotonic_ns()
            if now_ns - looked_ns > _LOOK_NS:
                looked_ns = now_ns
                control.look(header)
            time.sleep(
                0.0 if now_ns - started_ns < _AWAKE_NS else _PAUSE_S
            )  # the device wakes nobody

    def _give_up(self, reason: str) -> None:
        if self._cause is None:
            self._cause = reason
            with suppress(Exception):  # why it is given up says more
                if self._control is not None:
                    self._control.abort(reason)
            self._on_break(reason)


class _Prepared:
    """One op, as the thread that called has seen it."""

    __slots__ = (
        "call", "deadline_ns", "device", "inputs", "job", "outputs", "place", "ready", "started_ns", "way",
    )  # fmt: skip

    def __init__(
        self, call: Call, job: ChunkedOp, inputs: Sequence[DeviceBuffer], outputs: Sequence[DeviceBuffer],
        way: GpuRoute, device: int, ready: Any, started_ns: int, deadline_ns: int,
    ) -> None:  # fmt: skip
        self.call = call
        self.job = job
        #: Here for their memory, which may be a copy that nobody else has.
        self.inputs = inputs
        self.outputs = outputs
        self.way = way
        self.device = device
        self.ready = ready
        #: Where the ranks find out that all come to it.
        self.place: PlaceMeeting | None = None
        #: Job time.
        self.started_ns = started_ns
        self.deadline_ns = deadline_ns


def _blocks(
    buffers: Sequence[DeviceBuffer], splits: Sequence[int] | None, size: int, is_cut: bool
) -> list[DeviceBlock]:
    return [
        DeviceBlock(buffers[index].address + offset, nbytes)
        for index, offset, nbytes in cut_blocks(buffers, splits, size, is_cut)
    ]
