"""Shows each op in PyTorch's profilers while one runs, named and measured as torch shows those of gloo.

    gloo:all_reduce   input shapes [[4, 3]]   bytes and group beside it

A blocking op is a span of the thread that called it. One with async_op=True lasts from its start to its
end and is marked asynchronous. Like arrays/torch_arrays.py this never imports torch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distdbg.ops.engine import Pending
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.recorder.torch_profiler import shown

if TYPE_CHECKING:
    from distdbg.ops.call import Call
    from distdbg.runtime.groups.group_methods import GroupMethods
    from distdbg.runtime.handles.work import Work


def run_shown(group: GroupMethods, call: Call, async_op: bool) -> Work | int:
    """`group.run`, as a span of the profiler that runs."""
    name = f"{group.name()}:{call.kind.label}"
    arrays = call.inputs or call.outputs
    tensors = [array for array in arrays if is_tensor(array)]
    nbytes = sum(getattr(array, "nbytes", 0) for array in arrays)
    shown.op = True
    try:
        if async_op:
            # The one kind of span that another thread may end; it has no named facts.
            span = AsyncSpan(name, [*tensors, nbytes])
            try:
                work = group.run(call, True)
            except BaseException:
                span.end()
                raise
            work.pending = ShownPending(work.pending, span)
            group.world.get_watcher().watch(work.pending, span.end)
            return work
        facts = {
            "Collective name": call.kind.label,
            "Process Group Name": group.group_name,
            "Process Group Description": group.label,
            "Group size": group.size(),
            "bytes": nbytes,
        }
        with _module("torch._C._profiler")._RecordFunctionFast(name, tensors, facts):
            return group.run(call)
    finally:
        shown.op = False


class AsyncSpan:
    """The time from the start of an op to its end, wherever that is noticed first."""

    def __init__(self, name: str, inputs: Sequence[Any]) -> None:
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._span = _module("torch.autograd")._record_function_with_args_enter(name, *inputs)

    def end(self) -> None:
        """End it, the first time that this is called."""
        with self._lock:
            span, self._span = self._span, None
        if span is None:
            return
        end = partial(_module("torch.autograd")._record_function_with_args_exit, span)
        if threading.get_ident() != self._thread:
            end()
            return
        # One that its own thread ends is no asynchronous one: what ran meanwhile would be a part of it.
        thread = threading.Thread(target=end, name="distdbg-profiler")
        thread.start()
        thread.join()


class ShownPending:
    """Implements Pending around another one, and ends the span of its op."""

    def __init__(self, pending: Pending, span: AsyncSpan) -> None:
        self._pending = pending
        self._span = span

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pending, name)

    def done(self) -> bool:
        """Whether the op has ended, well or badly; never blocks."""
        is_done = self._pending.done()
        if is_done:
            self._span.end()
        return is_done

    def wait(self, deadline_ns: int) -> None:
        """Block until the op has ended; raise its error. At the deadline: OpTimeout."""
        try:
            self._pending.wait(deadline_ns)
        finally:
            self.done()

    def source_rank(self) -> int:
        """The group rank a finished recv got its message from; -1 for other ops."""
        return self._pending.source_rank()


def _module(name: str) -> Any:
    return sys.modules[name]
