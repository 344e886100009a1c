"""Arrays on a GPU through an engine of the host: copied into pinned memory, and what was written back again.

Works for every op, for CuPy's arrays and CUDA tensors, and for several ranks on one GPU. Large arrays have a
faster way where all ranks can go it (gpu/). The host waits for
the copies, so the call comes back when the op has ended, as for arrays on the host. Copies are made in the
stream of the caller.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from distdbg.ops.around import PendingAround
from distdbg.ops.call import Call, Variant
from distdbg.ops.reduce_op import RedOpType, ReduceOp
from distdbg.runtime.api.arguments import reducible
from distdbg.runtime.arrays.capture import refuse_captured
from distdbg.runtime.arrays.device_arrays import check_taken, is_on_device, library_of, on_device_of
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.backends.gpu.pinned_memory import count_if_possible, note_pinned
from distdbg.runtime.handles.waits import has_failed

if TYPE_CHECKING:
    from distdbg.ops.engine import Engine, Pending
    from distdbg.runtime.backends.on_device import OnDevice


def is_for_device(call: Call) -> bool:
    """Whether one of the arrays is on a GPU."""
    return any(is_on_device(array) for array in (*call.inputs, *call.outputs))


def run(engine: Engine, call: Call, on_gpu: OnDevice | None = None) -> int:
    """Carry out the call on the host, or by what the group has for arrays on a GPU."""
    if on_gpu is not None:
        source = on_gpu.try_run(engine, call)
        if source is not None:
            return source
    staged = StagedCall(call)
    source = engine.run(staged.call)
    staged.bring_back()
    return source


def submit(engine: Engine, call: Call, on_gpu: OnDevice | None = None) -> Pending:
    """Start the call on the host; its outputs are brought back by whoever finds that it has ended."""
    if on_gpu is not None:
        pending = on_gpu.try_submit(engine, call)
        if pending is not None:
            return pending
    staged = StagedCall(call)
    return StagedPending(engine.submit(staged.call), staged)


class StagedCall:
    """One call, with host memory in the place of its arrays on a GPU."""

    def __init__(self, call: Call) -> None:
        refuse_captured(call.name or call.kind.label, (*call.inputs, *call.outputs))
        self._back: list[Callable[[], None]] = []
        #: By the identity of the array: in place, one is both.
        self._hosts: dict[int, Any] = {}
        self.call = copy(call)
        reads_outputs = call.inputs is call.outputs
        self.call.outputs = tuple([self._out(x, reads_outputs) for x in call.outputs])
        if reads_outputs:
            self.call.inputs = self.call.outputs
        else:
            self.call.inputs = tuple([self._in(x) for x in call.inputs])
        if call.op is not None and call.op.op is RedOpType.PREMUL_SUM and self.call.inputs:
            self._scale(call.op)

    def bring_back(self) -> None:
        """Copy to the GPU what the op has written."""
        for copy_one in self._back:
            copy_one()
        self._back.clear()

    def _in(self, x: Any) -> Any:
        if not is_on_device(x):
            return x
        host = self._hosts.get(id(x))
        if host is None:
            host = self._hosts[id(x)] = _new_host(x)
        _to_host(x, host)
        return host

    def _out(self, x: Any, is_read: bool) -> Any:
        if not is_on_device(x):
            return x
        host = self._hosts[id(x)] = _new_host(x)
        if is_read:
            _to_host(x, host)
        self._back.append(partial(_to_device, x, host))
        return host

    def _scale(self, op: ReduceOp) -> None:
        """PREMUL_SUM, which NCCL has and the host makes of a scaled input and SUM."""
        parts = [reducible(self.call.name or self.call.kind.label, x, op) for x in self.call.inputs]
        self.call.inputs = tuple([part for part, _ in parts])
        self.call.op = parts[0][1]
        self.call.add_extra(Variant.PREMUL_SUM)


class BringsBack(Protocol):
    """An engine that knows what the host has of an op."""

    def bring_back(self) -> None:
        """Copy to the GPU what the op has written."""
        ...


class StagedPending(PendingAround):
    """Implements Pending around the host's."""

    __slots__ = ("_lock", "_staged")

    def __init__(self, inner: Pending, staged: BringsBack) -> None:
        self.inner = inner
        self._lock = threading.Lock()  # protects _staged, which copies back once
        self._staged: BringsBack | None = staged

    def done(self) -> bool:
        """Whether the op has ended; then its outputs are on the GPU as well."""
        if not self.inner.done():
            return False
        if not has_failed(self.inner):
            self._bring_back()
        return True

    def wait(self, deadline_ns: int) -> None:
        """Wait for the host, then bring back."""
        self.inner.wait(deadline_ns)
        self._bring_back()

    def has_failed(self) -> bool:
        """Whether the op is known to have ended with an error."""
        return has_failed(self.inner)

    def _bring_back(self) -> None:
        with self._lock:
            staged, self._staged = self._staged, None
            if staged is not None:
                staged.bring_back()


def _new_host(x: Any) -> Any:
    """Memory for x on the host, pinned where its library pins and there is room."""
    host: Any
    if is_tensor(x):
        is_pinned = count_if_possible(int(x.nbytes))
        host = sys.modules["torch"].empty(x.shape, dtype=x.dtype, pin_memory=is_pinned)
    else:
        check_taken(x)
        pinned: Any = getattr(sys.modules.get("cupyx"), "empty_pinned", None)
        is_pinned = pinned is not None and count_if_possible(int(x.nbytes))
        host = (pinned if is_pinned else np.empty)(x.shape, x.dtype)
    if is_pinned:
        note_pinned(host, int(x.nbytes))
    return host


def _to_host(x: Any, host: Any) -> None:
    if is_tensor(x):
        host.copy_(x.detach())
    else:
        x.get(out=host)


def _to_device(x: Any, host: Any) -> None:
    if is_tensor(x):
        x.detach().copy_(host)
        return
    # By whoever finds that the op has ended: a thread that may use another device.
    with on_device_of(x):
        if x.flags.c_contiguous:
            x.set(host)
        else:
            x[...] = sys.modules["cupy"].asarray(host)
        stream = getattr(getattr(library_of(x), "cuda", None), "get_current_stream", None)
        if stream is not None:
            stream().synchronize()  # the copy reads the host's memory, which is freed after it
