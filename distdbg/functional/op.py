"""Carries out one functional op, at once or in the background, and hands out what it made.

With a torch tensor that requires grad the result is made part of autograd's graph, by torch_bridge; the op
itself is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

import numpy as np

from distdbg.errors import UsageError
from distdbg.ops.call import Call
from distdbg.runtime.api.arguments import Array
from distdbg.runtime.api.options import Timeout
from distdbg.runtime.arrays.torch_arrays import is_tensor, wants_gradient
from distdbg.runtime.groups.coalesced import limited, start_all
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.handles.work import Work

_NO_TIMEOUT: Final = timedelta(0)


class Result:
    """A functional op in flight: `wait()` and `result()` return its array, or list of arrays."""

    __slots__ = ("_finish", "_is_made", "_made", "_work")

    def __init__(self, work: Work, finish: Callable[[], Any]) -> None:
        if work.started is not None:
            work.started.handle = "Result"
        self._work = work
        self._finish = finish
        self._is_made = False
        self._made: Any = None

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> Any:
        """Block until the op has ended and return what it made; its error is raised.

        A positive `timeout` limits this wait alone: OpTimeout is raised and the op goes on.
        """
        if not self._is_made:
            self._work.wait(timeout)
            self._made = self._finish()
            self._is_made = True
        return self._made

    def result(self) -> Any:
        """Return what the op made, waiting for it where it has not ended."""
        return self.wait()

    def is_completed(self) -> bool:
        """Return whether the op has ended, well or badly."""
        return self._work.is_completed()

    def exception(self) -> BaseException | None:
        """Return the error of the ended op; None when it went well or has not ended."""
        return self._work.exception()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """NumPy's functions wait for it and take the array."""
        made = np.asarray(self.wait(), dtype)
        return made.copy() if copy else made

    def __repr__(self) -> str:
        return f"<Result of {self._work!r}>"


def wait_tensor(tensor: Any) -> Any:
    """Return the array of a Result, and any array as it is."""
    return tensor.wait() if isinstance(tensor, Result) else tensor


class OpRequest(NamedTuple):
    """How an op was asked for."""

    name: str
    group: ProcessGroup
    async_op: bool
    timeout: Timeout


def carry_out(
    request: OpRequest,
    calls: Sequence[Call],
    inputs: Sequence[Array],
    finish: Callable[[], Any],
    gradient: Callable[..., Sequence[Any]],
) -> Any:
    """Run the op and return its array or arrays; a Result with `async_op`.

    Args:
        inputs: What the user gave, of which nothing is changed.
        finish: After the op: an array, or a tuple of them.
        gradient: From the gradients of the outputs to those of the inputs, by functional ops again.
    """
    name, group, async_op, timeout = request
    if group.collector is not None:
        raise UsageError(
            f"functional.{name} was called inside a coalescing block, at the end of which ops start",
            hint="call it outside; all_reduce_coalesced and the like take several arrays",
        )
    if wants_gradient(inputs):
        _check_tensors(name, inputs)
        from distdbg.torch_bridge.functional import differentiable

        finish = differentiable(name, group, inputs, finish, gradient)
    calls = limited(calls, timeout)
    if len(calls) > 1:
        work = start_all(group, calls)
        if async_op:
            return Result(work, finish)
        work.wait()
    elif async_op:
        return Result(group.run(calls[0], True), finish)
    else:
        group.run(calls[0])
    return finish()


def _check_tensors(name: str, inputs: Sequence[Array]) -> None:
    tensors = [is_tensor(each) for each in inputs]
    if not all(tensors):
        raise UsageError(
            f"{name}: tensors[{tensors.index(False)}] is a NumPy array, and another a torch tensor "
            "that requires grad",
            hint="autograd needs tensors alone: give torch.from_numpy(array), or tensor.detach()",
        )
