"""The option objects of ProcessGroup's methods: plain classes with torch.distributed's attributes.

A timeout of UNSET (below zero) means: the group's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from distdbg.config import LONGEST_S
from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.reduce_op import ReduceOp

UNSET = timedelta(milliseconds=-1)


#: What every function takes as `timeout=`: a length, or seconds; None means the group's.
Timeout = timedelta | float | None


def seconds_or_none(timeout: Timeout) -> float | None:
    """Turn a timeout into what a Call carries: None, and anything below zero, means the group's."""
    if timeout is None:
        return None
    if isinstance(timeout, timedelta):
        seconds = timeout.total_seconds()
    elif isinstance(timeout, (int, float)) and timeout == timeout:
        seconds = float(timeout)
    else:
        wrong = UsageError if isinstance(timeout, float) else WrongTypeError  # NaN
        raise wrong(f"timeout must be a timedelta or seconds, not {timeout!r}")
    return min(seconds, LONGEST_S) if seconds >= 0 else None


class CollectiveOptions:
    """What every option class has."""

    def __init__(self) -> None:
        self.timeout: timedelta = UNSET
        self.asyncOp: bool = True

    @property
    def timeout_s(self) -> float | None:
        """The timeout as a Call carries it."""
        return seconds_or_none(self.timeout)


class RootOptions(CollectiveOptions):
    """Options of an op that has a root; rootRank is a group rank."""

    def __init__(self) -> None:
        super().__init__()
        self.rootRank: int = 0


class AllreduceOptions(CollectiveOptions):
    """Options of ProcessGroup.allreduce."""

    def __init__(self) -> None:
        super().__init__()
        self.reduceOp: ReduceOp = ReduceOp.SUM


class AllreduceCoalescedOptions(AllreduceOptions):
    """Options of ProcessGroup.allreduce_coalesced."""


class ReduceScatterOptions(AllreduceOptions):
    """Options of ProcessGroup.reduce_scatter and its single and coalesced forms."""


class AllgatherOptions(CollectiveOptions):
    """Options of ProcessGroup.allgather and its single and coalesced forms."""


class AllToAllOptions(CollectiveOptions):
    """Options of ProcessGroup.alltoall and alltoall_base."""


class GatherOptions(RootOptions):
    """Options of ProcessGroup.gather."""


class ScatterOptions(RootOptions):
    """Options of ProcessGroup.scatter."""


class BroadcastOptions(RootOptions):
    """Options of ProcessGroup.broadcast."""

    def __init__(self) -> None:
        super().__init__()
        self.rootTensor: int = 0


class ReduceOptions(BroadcastOptions):
    """Options of ProcessGroup.reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.reduceOp: ReduceOp = ReduceOp.SUM


class BarrierOptions(CollectiveOptions):
    """Options of ProcessGroup.barrier."""

    def __init__(self) -> None:
        super().__init__()
        self.device_ids: Sequence[int] = []
        self.device: object = None
