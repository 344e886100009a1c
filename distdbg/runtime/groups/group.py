"""ProcessGroup: ranks that communicate; the one place where their ops are issued.

    api/, group_methods.py  ->  Call  ->  ProcessGroup.run  ->  engine

Whatever wants to see or check every op wraps `ProcessGroup.run`, or the engine.

A subclass that overrides methods of torch's names (`allreduce`, `broadcast`, ...) is used through
them: without an engine of its own, a group runs Calls by calling its own methods.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NewType, overload

from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.call import Call
from distdbg.ops.engine import Engine, Pending
from distdbg.runtime.api.integers import to_int
from distdbg.runtime.api.options import seconds_or_none
from distdbg.runtime.groups.group_methods import GroupMethods
from distdbg.runtime.handles.work import Work
from distdbg.runtime.process.debugger_seam import Breakpoints
from distdbg.runtime.process.world import World, current, current_world, not_initialized
from distdbg.runtime.recorder import torch_profiler

if TYPE_CHECKING:
    from distdbg.native import KnownCalls
    from distdbg.runtime.api.blocks import Blocks
    from distdbg.runtime.api.coalescing import Collector
    from distdbg.runtime.members.member_liveness import Life
    from distdbg.runtime.store import Store


#: The name of a group, where torch's signatures say so.
GroupName = NewType("GroupName", str)


class NonGroupMember(int):
    """What new_group returns to ranks outside the group; equal to torch's -100."""

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"


class _WorldAttribute(type):
    """Gives `group.WORLD` and `GroupMember.WORLD`: the current default group, or None."""

    @property
    def WORLD(cls) -> ProcessGroup | None:
        return current().default

    @WORLD.setter
    def WORLD(cls, value: ProcessGroup | None) -> None:
        current().default = value


class group(metaclass=_WorldAttribute):
    """`group.WORLD` is the default group."""


class GroupMember(metaclass=_WorldAttribute):
    """`WORLD` is the default group; NON_GROUP_MEMBER stands for a group one is not in."""

    NON_GROUP_MEMBER = NonGroupMember(-100)


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

    group_name: str = ""
    """What all ranks know the group by, and no other group of the job is called."""
    group_desc: str = "undefined"
    """What the program calls it: `group_desc=` of the function that made it."""
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
        self._rank = int(rank)
        self._size = int(size)
        self.store: Store | None = store
        self.world: World = current()
        self.ranks: list[int] = list(range(self._size))
        self.group_ranks: dict[int, int] = {rank: rank for rank in self.ranks}
        self.timeout_s = 1800.0
        self.backend_config = "cpu:custom"
        #: Its part of the parent's communicator on a device, until the engine has it.
        self.device_part: object = None
        #: How often its communicator was to be split: all ranks count alike.
        self.splits = 0
        #: Of the members by group rank; empty where they are not known.
        self.members: tuple[Life, ...] = ()
        #: Of this group in the record; 0: it is not in one.
        self.record_number = 0
        self.collector: Collector | None = None
        #: How many monitored_barriers there were, the last that all ranks came to, and the first whose
        #: keys this rank has not deleted.
        self.monitored_seq = 0
        self.monitored_good = 0
        self.monitored_kept = 1
        #: The coalesced blocks it has run, made with the first.
        self.blocks: Blocks | None = None
        self.breakpoints = Breakpoints()
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

    @property
    def label(self) -> str:
        """What messages call the group: the description, where somebody gave one."""
        if self.group_desc == "default_pg":
            return "world"
        return self.group_name if self.group_desc == "undefined" else self.group_desc

    def set_ranks(self, ranks: Sequence[int]) -> None:
        """Say which global ranks the group ranks 0, 1, ... are."""
        self.ranks = list(ranks)
        self.group_ranks = {rank: index for index, rank in enumerate(self.ranks)}

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
            return torch_profiler.run_shown(self, call, async_op)
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

    def rank(self) -> int:
        """Return this rank's number in the group."""
        return self._rank

    def size(self) -> int:
        """Return how many ranks the group has."""
        return self._size

    def name(self) -> str:
        """Return the name of the backend."""
        return self.backend_config.split(",")[0].partition(":")[2]

    def get_group_store(self) -> Store:
        """Return the store of this group; keys are private to the group."""
        if self.store is None:
            raise UsageError(f"group {self.group_name!r} has no store")
        return self.store

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
        from distdbg.runtime.api.subgroups import split_off

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
        from distdbg.runtime.api.subgroups import merge_remote

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

#: What `group=` takes: a group, None for the default one, or NON_GROUP_MEMBER.
Group = ProcessGroup | NonGroupMember | int | None


def resolve(group: Group, what: str) -> ProcessGroup | None:
    """Return the group that is meant; None (and a warning) when this rank is not in it."""
    if group is None:
        default = current_world.get().default
        if default is None:
            raise not_initialized()
        return default
    if isinstance(group, ProcessGroup):
        return group
    if group == GroupMember.NON_GROUP_MEMBER:
        default = current_world.get().default
        who = f"rank {default.rank()}" if default is not None else "this process"
        warnings.warn(
            f"{what} was called on {who}, which is not in the given group; nothing is done",
            stacklevel=3,
        )
        return None
    raise WrongTypeError(
        f"{what}: group must be a ProcessGroup or None, not {type(group).__name__}"
    )


def to_group_rank(
    group: ProcessGroup,
    what: str,
    argument: str,
    global_rank: int | None,
    group_rank: int | None,
    default: int | None = None,
) -> int:
    """Return the group rank meant by exactly one of src= and group_src= (or dst=, ...)."""
    if group_rank is not None:
        if global_rank is not None:
            raise UsageError(f"{what}: give {argument} or group_{argument}, not both")
        group_rank = to_int(what, f"group_{argument}", group_rank)
        if not 0 <= group_rank < group.size():
            raise UsageError(
                f"{what}: group_{argument}={group_rank} is not in group {group.label!r} "
                f"of {group.size()} ranks"
            )
        return group_rank
    if global_rank is None:
        if default is None:
            raise UsageError(f"{what}: give {argument} or group_{argument}")
        global_rank = default
    global_rank = to_int(what, argument, global_rank)
    try:
        return group.group_ranks[global_rank]
    except KeyError:
        raise UsageError(
            f"{what}: rank {global_rank} given as {argument} is not in group {group.label!r}",
            hint=f"{argument} is a global rank; group_{argument} counts within the group",
        ) from None
