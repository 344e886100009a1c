"""ProcessGroup: ranks that communicate; the one place where their ops are issued.

    api/, group_methods.py  ->  Call  ->  ProcessGroup.run  ->  engine

Whatever wants to see or check every op wraps `ProcessGroup.run`, or the engine.

A subclass that overrides methods of torch's names (`allreduce`, `broadcast`, ...) is used through
them: without an engine of its own, a group runs Calls by calling its own methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NewType, overload

from distdbg.errors import UsageError
from distdbg.ops.call import Call
from distdbg.ops.engine import Engine, Pending
from distdbg.runtime.api.options import seconds_or_none
from distdbg.runtime.groups.coalesced import start_all
from distdbg.runtime.groups.group_methods import GroupMethods
from distdbg.runtime.groups.leaving import say_destroyed
from distdbg.runtime.handles.work import Work
from distdbg.runtime.process.rank_context import current_context, not_initialized
from distdbg.runtime.recorder import torch_profiler
from distdbg.runtime.recorder.profiled_ops import run_shown

if TYPE_CHECKING:
    from distdbg.native import KnownCalls
    from distdbg.runtime.groups.coalesced import Collector
    from distdbg.runtime.store import Store


#: The name of a group, where torch's signatures say so.
GroupName = NewType("GroupName", str)


class BreakpointCounts:
    """What a group remembers of the calls of `dist.breakpoint`."""

    __slots__ = ("count", "has_said_off", "passed")

    def __init__(self) -> None:
        #: How many stopped, counted alike by all ranks.
        self.count = 0
        #: How often each line came by, for `skip`.
        self.passed: dict[str, int] = {}
        self.has_said_off = False


#: Group, its ranks, timeout, options, name, description.
SplitOff = Callable[
    ["ProcessGroup", Sequence[int], timedelta | None, object, str | None, str | None],
    "ProcessGroup",
]
#: Group, the store of all, their number of ranks, timeout, name, description.
MergeRemote = Callable[
    ["ProcessGroup", "Store", int, timedelta | None, str | None, str | None], "ProcessGroup"
]
_makers: tuple[SplitOff, MergeRemote] | None = None


def set_group_makers(split_off: SplitOff, merge_remote: MergeRemote) -> None:
    """Say what makes groups from groups: api/subgroups.py does, as soon as it is imported."""
    global _makers
    _makers = split_off, merge_remote


def _group_makers() -> tuple[SplitOff, MergeRemote]:
    if _makers is None:  # init_process_group imports them
        raise not_initialized()
    return _makers


class ProcessGroup(GroupMethods):
    """A group of ranks, seen from one of them. Made by init_process_group and new_group."""

    class BackendType:
        """Which kind of backend a group has; strings here, an enum of numbers in torch."""

        UNDEFINED = "undefined"
        GLOO = "gloo"
        NCCL = "nccl"
        UCC = "ucc"
        MPI = "mpi"
        XCCL = "xccl"
        CUSTOM = "custom"

    UNDEFINED = BackendType.UNDEFINED
    GLOO = BackendType.GLOO
    NCCL = BackendType.NCCL
    UCC = BackendType.UCC
    MPI = BackendType.MPI
    XCCL = BackendType.XCCL
    CUSTOM = BackendType.CUSTOM

    known_calls: KnownCalls | Literal[False] | None = None
    """Calls that native code carries out alone (api/known_calls.py); None: the group has to be looked at
    first; False: it was, and each of its calls goes the Python way."""
    known_engine: Engine | None = None
    """The engine that carried them out last."""
    bound_device_id: object = None
    """The device that all its arrays are on: `device_id=` of the function that made it, or None."""

    def __init__(self, *args: Any) -> None:
        """Take (rank, size) or (store, rank, size), for subclasses that bring their own ops."""
        store, rank, size = args if len(args) == 3 else (None, *args)
        super().__init__(store, int(rank), int(size), current_context())
        #: Its part of the parent's communicator on a device, until the engine has it.
        self.device_part: object = None
        #: How often its communicator was to be split: all ranks count alike.
        self.splits = 0
        self.collector: Collector | None = None
        self.breakpoints = BreakpointCounts()
        self._engine: Engine | None = None

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        # Whatever has changed may be why its ops went the way they did.
        if name != "known_calls":
            object.__setattr__(self, "known_calls", None)

    @property
    def engine(self) -> Engine:
        """What carries out the ops; without one, this object's own methods."""
        if self._engine is None:
            from distdbg.runtime.backends.foreign import ForeignEngine

            self._engine = ForeignEngine(self, self._rank, self._size, self.timeout_s)
        return self._engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._engine = engine

    @overload
    def run(self, call: Call, async_op: Literal[False] = False) -> int: ...
    @overload
    def run(self, call: Call, async_op: Literal[True]) -> Work: ...
    @overload
    def run(self, call: Call, async_op: bool) -> Work | int: ...

    def run(self, call: Call, async_op: bool = False) -> Work | int:
        """Give one op to the engine. Blocking: the group rank a recv came from, else -1."""
        if self.collector is not None and self.collector.takes(call):
            return self.collector.illegal_work() if async_op else -1
        if torch_profiler.profiler is not None and torch_profiler.is_on():
            return run_shown(self, call, async_op)
        engine = self._engine or self.engine
        try:
            if async_op:
                work = Work(self, call, engine.submit(call))
                unwaited = self.world.unwaited
                if unwaited is not None and unwaited.latent.is_on:
                    work.started = unwaited.start(self, call, work.pending)
                return work
            unwaited = self.world.unwaited
            if unwaited is not None and unwaited.latent.is_on:
                unwaited.block(self, call)
            return engine.run(call)
        except UsageError as error:
            raise error.named(call.name or call.kind.label) from error.__cause__

    def _start_all(self, all_calls: Sequence[Call], opts: Any = None) -> Work:
        return start_all(self, all_calls)

    def issued(self) -> int:
        """Return how many collectives this rank has begun; 0 where the backend does not count them."""
        engine: object = self.engine
        while engine is not None:
            native = getattr(engine, "group", None)
            if native is not None and hasattr(native, "issued"):
                return int(native.issued)
            engine = getattr(engine, "inner", None)
        return 0

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the limit of ops that bring none of their own."""
        seconds = seconds_or_none(timeout)
        if seconds is None:
            raise UsageError("set_timeout expects a timeout of zero or more")
        self.timeout_s = seconds
        self.engine.set_timeout(seconds)

    def abort(self) -> None:
        """Break the group: ops in flight end with an error on every rank."""
        self.engine.abort("called abort()")

    def shutdown(self) -> None:
        """Leave the group and free what it holds; ops afterwards are a UsageError."""
        engine = self._engine
        self._engine = ClosedEngine(self.label)
        self.members = ()
        try:
            if engine is not None:
                try:
                    say_destroyed(engine, self.world.recorder)
                finally:
                    engine.close()
        finally:
            if self.world.recorder is not None:
                self.world.recorder.close_group(self.record_number)

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: object = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[object] | None = None,
    ) -> ProcessGroup:
        """Make a group of some group ranks of this one; exactly these ranks call it."""
        split_off, _ = _group_makers()
        return split_off(self, ranks, timeout, opts, group_name, group_desc)

    def merge_remote_group(
        self,
        store: Store,
        size: int,
        timeout: timedelta | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
    ) -> ProcessGroup:
        """Make one group of this one and others that call it with the same store and size."""
        _, merge_remote = _group_makers()
        return merge_remote(self, store, size, timeout, group_name, group_desc)

    def boxed(self) -> object:
        """Return self; torch needs a wrapper here to pass the group through its dispatcher."""
        return self

    @staticmethod
    def unbox(arg0: object) -> ProcessGroup:
        """Return the group that boxed() gave."""
        if not isinstance(arg0, ProcessGroup):
            raise UsageError(f"unbox expects what boxed() returned, not {type(arg0).__name__}")
        return arg0

    def __repr__(self) -> str:
        return (
            f"<ProcessGroup {self.label!r} rank {self._rank} of {self._size} "
            f"({self.backend_config})>"
        )


class ClosedEngine:
    """The engine of a destroyed group: any op says so."""

    def __init__(self, group_name: str) -> None:
        self._group_name = group_name

    def _error(self, call: Call) -> UsageError:
        what = call.name or call.kind.label
        return UsageError(f"{what} on group {self._group_name!r}, which was destroyed")

    def run(self, call: Call) -> int:
        """Refuse."""
        raise self._error(call)

    def submit(self, call: Call) -> Pending:
        """Refuse."""
        raise self._error(call)

    def set_timeout(self, timeout_s: float) -> None:
        """Do nothing."""

    def set_level(self, level: int) -> None:
        """Do nothing."""

    def abort(self, reason: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


#: As it is here: whoever puts another in its place wants to see each op.
PLAIN_RUN = ProcessGroup.run
