"""Several ops handed in as one: collected, or given as a list, then started together.

The engine runs the ops of a group in order anyway, so "coalesced" means one Work and one place
where errors come out. It is no kind of its own: each Call says which part of the block it is, which is
compared between ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from distdbg.errors import UsageError
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Pending
from distdbg.runtime.api.options import Timeout, seconds_or_none
from distdbg.runtime.handles.work import ManyPending, Work

if TYPE_CHECKING:
    from distdbg.runtime.groups.group_methods import GroupMethods
    from distdbg.runtime.groups.group_state import GroupState


class Collector:
    """Takes the Calls that one thread makes on one group while a coalescing block is open."""

    __slots__ = ("_thread", "calls")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.calls: list[Call] = []

    def takes(self, call: Call) -> bool:
        """Keep `call` for later when it is this thread's; True when kept."""
        if threading.get_ident() != self._thread:
            return False
        if self.calls and self.calls[0].kind != call.kind and not _is_p2p(self.calls[0], call):
            raise UsageError(
                f"a coalescing block holds ops of one kind: it has {self.calls[0].kind.label}, "
                f"and {call.kind.label} was called"
            )
        if self.calls and self.calls[0].op != call.op:
            raise UsageError("a coalescing block holds reductions of one reduce op only")
        self.calls.append(call)
        return True

    def illegal_work(self) -> Work:
        """Return what an async call gets inside the block: it has not started yet."""
        return _NotStartedWork()


class _NotStartedWork(Work):
    """Cannot be waited for; the block's own handle can."""

    __slots__ = ()

    def __init__(self) -> None:
        """Hold nothing."""

    def __del__(self) -> None:
        """There is nothing to wait for."""

    def __getattribute__(self, name: str) -> object:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise UsageError(
            f"Work.{name} was used inside a coalescing block; its ops start at the end of it",
            hint="use async_ops=True and the handle that the block gives",
        )


def start_all(group: GroupMethods, calls: Sequence[Call]) -> Work:
    """Start all calls in order; the one Work returned ends with the last."""
    if not calls:
        return Work(group, Call(Kind.BARRIER, (), ()), ManyPending(()))
    if len(calls) > 1:
        mark_block(group, calls)
    parts = []
    try:
        with together(group):
            for call in calls:
                parts.append(group.run(call, True))  # noqa: PERF401 - those before one that raises count
    except BaseException:
        for part in parts:
            part.hand_over()  # nobody gets a handle to wait for those that were started
        raise
    pendings: list[Pending] = [part.pending for part in parts]
    outputs = [array for call in calls for array in call.outputs]
    whole = Call(calls[0].kind, (), outputs, calls[0].op, name=calls[0].name)
    work = Work(group, whole, ManyPending(pendings))
    started = [each for part in parts if (each := part.hand_over()) is not None]
    unwaited = group.world.unwaited
    if unwaited is not None and started:
        work.started = unwaited.bundle(group, whole, work.pending, started)
    return work


@contextmanager
def together(group: GroupState) -> Iterator[None]:
    """In this block the engine gets the ops of this thread as one, where it has a way to."""
    engine: Any = group.engine
    while engine is not None and not hasattr(engine, "begin_block"):
        engine = getattr(engine, "inner", None)
    if engine is None:
        yield
        return
    engine.begin_block()
    try:
        yield
    finally:
        engine.end_block()


def limited(calls: Sequence[Call], timeout: Timeout) -> Sequence[Call]:
    """Return the calls with a limit for those that bring none."""
    limit_s = seconds_or_none(timeout)
    if limit_s is None:
        return calls
    own = [copy(call) if call.timeout_s is None else call for call in calls]  # some are shared
    for call in own:
        call.timeout_s = limit_s if call.timeout_s is None else call.timeout_s
    return own


def mark_block(group: GroupState, calls: Sequence[Call]) -> None:
    """Make calls the parts of one block, so that ranks are compared in all of it at its first op."""
    if group.blocks is None:
        from distdbg.runtime.api.blocks import CoalescedBlocks

        group.blocks = CoalescedBlocks()
    with suppress(UsageError):  # the op itself tells what is wrong with its arrays
        group.blocks.mark(calls, group.size())


def _is_p2p(first: Call, second: Call) -> bool:
    return first.kind >= Kind.SEND and second.kind >= Kind.SEND
