"""What an op was asked for: torch's option objects, or the bare values of its other overloads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api.options import seconds_or_none
from distdbg.torch_bridge.reduce_op import reduce_op


def is_async(opts: Any) -> bool:
    """Whether the caller waits by itself; releases before 2.7 do not say."""
    return getattr(opts, "asyncOp", True)


def op_of(opts: Any, op: Any = None) -> ReduceOp:
    """The reduce op: given as `op`, in the options, or instead of them; SUM without any."""
    if op is not None:
        return reduce_op(op)
    if opts is None or isinstance(opts, int):
        return ReduceOp.SUM
    try:
        return reduce_op(opts.reduceOp)
    except AttributeError:
        return reduce_op(opts)


def root_of(opts: Any, root: int | None = None) -> int:
    """The group rank of the root: given as `root`, in the options, or instead of them; 0 without any."""
    if root is not None:
        return root
    if opts is None:
        return 0
    return int(opts) if isinstance(opts, int) else int(opts.rootRank)


def timeout_of(opts: Any, timeout: timedelta | None = None) -> float | None:
    """The limit of this op in seconds; None: the group's."""
    if timeout is None:
        timeout = opts if isinstance(opts, timedelta) else getattr(opts, "timeout", None)
    return seconds_or_none(timeout)
