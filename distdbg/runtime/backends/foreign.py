"""ForeignEngine: makes an object with torch's method names look like an Engine.

The object may be anything that has some of allreduce, broadcast, allgather, ...; it may or may not
subclass our ProcessGroup. Arguments are passed as torch passes them to a backend: lists of arrays
and an option object. What it returns is a Work: wait(), is_completed(), maybe source_rank(); None
means that the op has ended. An op it does not have is a DistBackendError that names the method; ops
on one flat array fall back to the list form, on views cut from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.errors import DistBackendError, DistError, OpTimeout, UsageError, format_error
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Pending
from distdbg.record.durations import duration_text
from distdbg.runtime.api.arguments import Array, check_arrays
from distdbg.runtime.api.options import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    CollectiveOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from distdbg.runtime.arrays.buffers import as_output, cut
from distdbg.runtime.backends.torch_backends import is_torchs, options_for_torch, with_tensors
from distdbg.runtime.groups.group_methods import GroupMethods
from distdbg.runtime.handles.work import NO_DEADLINE

#: The backend's object and its handles: third-party code, of no common type.
Foreign = Any

_POLL_S = 0.0005


class ForeignEngine:
    """One group's engine over `backend`, an object of somebody else."""

    def __init__(
        self,
        backend: Foreign,
        rank: int,
        size: int,
        timeout_s: float,
        clock: JobClock = FREE_CLOCK,
    ) -> None:
        self.backend = backend
        self._is_torchs = is_torchs(backend)
        #: What a wait with a deadline looks at; one without is the backend's own.
        self.clock = clock
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s
        self._is_closed = False

    def run(self, call: Call) -> int:
        """Start and wait."""
        pending = self.submit(call)
        pending.wait(NO_DEADLINE)
        return pending.source_rank()

    def submit(self, call: Call) -> Pending:
        """Translate the call into the method of torch's name and start it."""
        self.check(call)
        if self._is_torchs:
            call = with_tensors(call)
        timeout_s = self._timeout_s if call.timeout_s is None else call.timeout_s
        try:
            work = _STARTERS[call.kind](self, call, timedelta(seconds=timeout_s))
        except DistError:
            raise
        except Exception as error:
            raise self._failed(call, error) from error
        return ForeignPending(self, call, work)

    def check(self, call: Call) -> None:
        """Raise what is wrong with the call on this rank alone; asked before others are involved."""
        check_arrays(call)

    def set_timeout(self, timeout_s: float) -> None:
        """Remember it; it is passed with each op."""
        self._timeout_s = timeout_s

    def set_level(self, level: int) -> None:
        """Do nothing: what is compared is the wrapper's business."""

    def abort(self, reason: str) -> None:
        """Ask the backend to abort, when it can."""
        if not self._is_ours("abort"):
            self.backend.abort()

    def close(self) -> None:
        """Ask the backend to shut down, when it can; once."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_ours("shutdown"):
            self.backend.shutdown()

    def _failed(self, call: Call, error: Exception) -> DistBackendError:
        return DistBackendError(
            f"{call.kind.label} failed in backend {type(self.backend).__name__}: "
            f"{format_error(error).splitlines()[0]}"
        )

    def _is_ours(self, name: str) -> bool:
        """Whether the backend lacks the method, or has only inherited our ProcessGroup's."""
        method = getattr(type(self.backend), name, None)
        if method is None:
            return getattr(self.backend, name, None) is None
        return method is getattr(GroupMethods, name, None)

    def _method(self, *names: str) -> Callable[..., Foreign] | None:
        """Return the first of these methods that the backend has."""
        for name in names:
            if not self._is_ours(name):
                method: Callable[..., Foreign] = getattr(self.backend, name)
                return method
        return None

    def _need(self, *names: str) -> Callable[..., Foreign]:
        method = self._method(*names)
        if method is None:
            raise DistBackendError(
                f"backend {type(self.backend).__name__} has no method {names[0]!r}"
            )
        return method

    # --- one starter for each kind --------------------------------------------------------------

    def _broadcast(self, call: Call, timeout: timedelta) -> Foreign:
        options = self._with(BroadcastOptions(), timeout, rootRank=call.root)
        return self._need("broadcast")([call.outputs[0]], options)

    def _all_reduce(self, call: Call, timeout: timedelta) -> Foreign:
        _move(call.inputs[0], call.outputs[0])
        options = self._with(AllreduceOptions(), timeout, reduceOp=call.op)
        return self._need("allreduce")([call.outputs[0]], options)

    def _reduce(self, call: Call, timeout: timedelta) -> Foreign:
        array = call.inputs[0]
        if call.outputs:
            _move(array, call.outputs[0])
            array = call.outputs[0]
        options = self._with(ReduceOptions(), timeout, reduceOp=call.op, rootRank=call.root)
        return self._need("reduce")([array], options)

    def _all_gather(self, call: Call, timeout: timedelta) -> Foreign:
        options = self._with(AllgatherOptions(), timeout)
        if self._is_flat(call.outputs, call.name):
            method = self._method("all_gather_single", "_allgather_base")
            if method is not None:
                return method(*self._flat(call.outputs[0], call.inputs[0]), options)
        outputs = self._blocks(call.outputs, call.inputs[0], call.name)
        return self._need("allgather")([outputs], [call.inputs[0]], options)

    def _gather(self, call: Call, timeout: timedelta) -> Foreign:
        options = self._with(GatherOptions(), timeout, rootRank=call.root)
        outputs = [list(call.outputs)] if call.outputs else []
        return self._need("gather")(outputs, [call.inputs[0]], options)

    def _scatter(self, call: Call, timeout: timedelta) -> Foreign:
        options = self._with(ScatterOptions(), timeout, rootRank=call.root)
        inputs = [list(call.inputs)] if call.inputs else []
        return self._need("scatter")([call.outputs[0]], inputs, options)

    def _reduce_scatter(self, call: Call, timeout: timedelta) -> Foreign:
        options = self._with(ReduceScatterOptions(), timeout, reduceOp=call.op)
        if self._is_flat(call.inputs, call.name):
            method = self._method("reduce_scatter_single", "_reduce_scatter_base")
            if method is not None:
                return method(*self._flat(call.outputs[0], call.inputs[0]), options)
        inputs = self._blocks(call.inputs, call.outputs[0], call.name)
        return self._need("reduce_scatter")([call.outputs[0]], [inputs], options)

    def _all_to_all(self, call: Call, timeout: timedelta) -> Foreign:
        options = self._with(AllToAllOptions(), timeout)
        if self._is_flat(call.outputs, call.name):
            method = self._method("all_to_all_single", "alltoall_base")
            if method is not None:
                splits = [list(call.output_splits or ()), list(call.input_splits or ())]
                return method(call.outputs[0], call.inputs[0], *splits, options)
        outputs, inputs = list(call.outputs), list(call.inputs)
        if self._is_flat(call.outputs, call.name):
            outputs = self._cut(call.outputs[0], call.output_splits)
            inputs = self._cut(call.inputs[0], call.input_splits)
        return self._need("alltoall")(outputs, inputs, options)

    def _barrier(self, call: Call, timeout: timedelta) -> Foreign:
        return self._need("barrier")(self._with(BarrierOptions(), timeout))

    def _send(self, call: Call, timeout: timedelta) -> Foreign:
        return self._need("send")([call.inputs[0]], call.peer, call.tag)

    def _recv(self, call: Call, timeout: timedelta) -> Foreign:
        if call.peer < 0:
            return self._need("recv_anysource")([call.outputs[0]], call.tag)
        return self._need("recv")([call.outputs[0]], call.peer, call.tag)

    def _with(self, options: CollectiveOptions, timeout: timedelta, **values: object) -> Foreign:
        options.timeout = timeout
        for name, value in values.items():
            setattr(options, name, value)
        return options_for_torch(options) if self._is_torchs else options

    def _is_flat(self, arrays: Sequence[Array], name: str | None) -> bool:
        # A list op on a group of one also has one array; only the flat forms carry a name.
        return len(arrays) == 1 and (self._size > 1 or name is not None)

    def _flat(self, *arrays: Array) -> Sequence[Array]:
        """Views in one dimension for torch's own backends, whose gloo cuts along the first one only."""
        return [array.reshape(-1) for array in arrays] if self._is_torchs else arrays

    def _cut(self, array: Array, splits: Sequence[int] | None) -> list[Array]:
        rows = array.shape[0]
        return cut(array, splits or [rows // self._size] * self._size)

    def _blocks(self, arrays: Sequence[Array], like: Array, name: str | None) -> list[Array]:
        """One array per rank, shaped as `like`; a flat one is cut into views."""
        if not self._is_flat(arrays, name):
            return list(arrays)
        if as_output(arrays[0]).finish is not None:
            raise UsageError(f"{name}: the array is not contiguous, which this backend cannot take")
        flat = arrays[0].reshape(-1)
        count = flat.shape[0] // self._size
        return [block.reshape(like.shape) for block in cut(flat, [count] * self._size)]


_STARTERS: dict[Kind, Callable[[ForeignEngine, Call, timedelta], Foreign]] = {
    Kind.BROADCAST: ForeignEngine._broadcast,
    Kind.ALL_REDUCE: ForeignEngine._all_reduce,
    Kind.REDUCE: ForeignEngine._reduce,
    Kind.ALL_GATHER: ForeignEngine._all_gather,
    Kind.GATHER: ForeignEngine._gather,
    Kind.SCATTER: ForeignEngine._scatter,
    Kind.REDUCE_SCATTER: ForeignEngine._reduce_scatter,
    Kind.ALL_TO_ALL: ForeignEngine._all_to_all,
    Kind.BARRIER: ForeignEngine._barrier,
    Kind.SEND: ForeignEngine._send,
    Kind.RECV: ForeignEngine._recv,
}


class ForeignPending:
    """A Work of somebody else, as a Pending. Its error is kept: it may be raised only once."""

    def __init__(self, engine: ForeignEngine, call: Call, work: Foreign) -> None:
        self._engine = engine
        self._call = call
        self._work = work
        self._error: DistError | None = None

    def done(self) -> bool:
        """Whether the Work says that it has ended."""
        return self._work is None or bool(self._work.is_completed())

    def wait(self, deadline_ns: int) -> None:
        """Wait on the Work; with a deadline, look at it until then."""
        if self._error is not None:
            raise self._error
        if self._work is None:
            return
        clock = self._engine.clock
        started = clock.now_ns()
        while deadline_ns != NO_DEADLINE and not self.done():
            clock.check(kind=self._call.kind.label)
            now = clock.now_ns()
            if now >= deadline_ns:
                waited_s = (now - started) / 1e9
                raise OpTimeout(
                    f"{self._call.kind.label} did not end within {duration_text(waited_s)}; it continues",
                    kind=self._call.kind.label,
                    waited_s=waited_s,
                )
            time.sleep(_POLL_S)
        try:
            self._work.wait()
        except DistError as error:
            self._error = error
            raise
        except Exception as error:
            self._error = self._engine._failed(self._call, error)
            raise self._error from error

    def source_rank(self) -> int:
        """Ask the Work of a recv; the peer when it does not know."""
        if self._call.kind != Kind.RECV:
            return -1
        for name in ("source_rank", "_source_rank"):
            ask = getattr(self._work, name, None)
            if ask is not None:
                return int(ask())
        return self._call.peer


def _move(source: Array, target: Array) -> None:
    """Ops in place: bring a separate input (a scaled copy) to where the backend works."""
    if source is not target:
        target[...] = source
