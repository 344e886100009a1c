"""Hooked: a comm hook that is registered, how it is called for a bucket, and what it has raised in a pass.

Where it raises on one rank, which ops the others wait for is not known: one hook has one op, another several.
So that rank goes to the end of the pass, and begins the status there again and again: each time it ends an op
of a hook of the others, by a mismatch that nobody sees, until all ranks are in the status. Then nobody waits
any more, and all exchange the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from distdbg.errors import CollectiveError, PeerLost, UsageError, WrongTypeError
from distdbg.log.log_levels import DebugLevel
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.levels import level_of
from distdbg.runtime.parallel.reducer.agreement import is_ahead
from distdbg.runtime.parallel.reducer.arrays import Array
from distdbg.runtime.parallel.reducer.bucket import Bucket, GradBucket

#: `hook(state, bucket)` returns a future of the flat array that replaces the bucket's.
CommHook = Callable[[Any, GradBucket], Any]


class Hooked:
    """A hook with its state; of one reducer."""

    def __init__(self, state: Any, hook: CommHook, group: ProcessGroup) -> None:
        self._state = state
        self._hook = hook
        self._group = group
        #: In messages.
        self.name: str = getattr(hook, "__qualname__", "hook")
        #: What it raised in this pass.
        self.failed: Exception | None = None

    def start(self, bucket: Bucket, parameters: Sequence[Array], is_last: bool) -> Any:
        """Call it; returns a future."""
        seen = GradBucket(bucket.index, bucket.flat, bucket.views, parameters, is_last)
        return _check_future(self._hook(self._state, seen), self.name, bucket.name)

    def wait(self, bucket: Bucket, future: Any) -> Array:
        """Return the new flat array."""
        return _check_result(future.wait(), bucket.flat, self.name, bucket.name)

    def fails(self, error: Exception) -> bool:
        """Take what start() or wait() raised; False: it is an op's, and all ranks know of it."""
        if is_ahead(error):
            error.__traceback__ = None  # a future of torch that has it would never be freed
            return True  # another rank's hook has raised: the reason is told at the end
        if isinstance(error, (CollectiveError, PeerLost)):
            return False
        if level_of(self._group.world) is DebugLevel.OFF:
            # Ops are not compared there, so the status would end none of the others', and this rank's next
            # op would meet one of this pass.
            self._group.engine.abort(f"gave up a pass of DDP: {self._say(error)}")
            return False
        if self.failed is None:
            self.failed = error
        return True

    @property
    def reason(self) -> str:
        """Why this rank gives up the pass; '' where it does not."""
        if self.failed is None:
            return ""
        return self._say(self.failed)

    def _say(self, error: Exception) -> str:
        first_line = str(error).partition("\n")[0]
        return f"comm hook {self.name}: {type(error).__name__}: {first_line}"

    def raise_failed(self) -> None:
        """Raise what it raised, if it did."""
        failed, self.failed = self.failed, None
        if failed is not None:
            raise failed from failed.__cause__  # not in the course of what the others are told

    def excuse(self) -> None:
        """All ops have ended that it began, and nobody will wait for them."""
        unwaited = self._group.world.unwaited
        if unwaited is not None:
            unwaited.excuse(self._group)


_HINT = "see the section on comm hooks in docs/how-to/train-data-parallel.md"


def _check_future(returned: Any, hook: str, bucket: str) -> Any:
    """Return what a hook returned; WrongTypeError unless it can be waited for."""
    if not callable(getattr(returned, "wait", None)):
        raise WrongTypeError(
            f"comm hook {hook} returned {_a(returned)} for {bucket}, not a future", hint=_HINT
        )
    return returned


def _check_result(value: Any, flat: Any, hook: str, bucket: str) -> Any:
    """Return the array a hook's future ended with, maybe in a list; errors unless it fits the bucket."""
    if isinstance(value, (list, tuple)) and value:  # as a Work's future has it
        value = value[0]
    shape = getattr(value, "shape", None)
    if shape is None or is_tensor(value) != is_tensor(flat):
        kind = "a tensor" if is_tensor(flat) else "an array"
        raise WrongTypeError(
            f"the future of comm hook {hook} ended with {_a(value)} for {bucket}, not {kind}",
            hint=_HINT,
        )
    if prod(shape) != prod(flat.shape):
        raise UsageError(
            f"the future of comm hook {hook} ended with {prod(shape)} numbers for {bucket}, "
            f"which has {prod(flat.shape)}",
            hint=_HINT,
        )
    return value


def _a(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
