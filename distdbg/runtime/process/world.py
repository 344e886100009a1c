"""A World is what one rank knows: its groups, its counters, its debug level.

A process has one World, and every rank that runs as a thread has its own: `use(World())` makes it
the current one for this thread (and for asyncio tasks, `contextvars.copy_context().run`, and, where
Python hands contexts to new threads, for the threads it starts). The one variable below is the only
mutable global state of the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from distdbg.log.logs import set_rank_source
from distdbg.runtime.process.rank_context import RankContext, not_initialized, set_context_source

if TYPE_CHECKING:
    from distdbg.native import Form
    from distdbg.ops.engine import Engine
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.latent_errors.abandoned import AbandonedGroups
    from distdbg.runtime.rendezvous import Membership


class Stops(Protocol):
    """The places at which a rank stops in a debugger; distdbg/debugger/breaker.py implements it."""

    def on_group(self, group: ProcessGroup) -> None:
        """A group was made: its ops are looked at too."""
        ...

    def through(self, group: ProcessGroup, engine: Engine) -> Engine:
        """Read the armed rules anew; what the op at hand is to be carried out by."""
        ...

    def close(self) -> None:
        """Stop nowhere any more."""
        ...


class HasCancel(Protocol):
    """Says at the end of the process why this rank leaves its groups: exit_reason.py."""

    def cancel(self) -> None:
        """There are no groups any more."""
        ...


class HasClose(Protocol):
    """Answers an observer that wants this process's stacks: stack_signal.py."""

    def close(self) -> None:
        """Answer no longer."""
        ...


class World(RankContext):
    """All groups of one rank. Only init.py, destroy.py and api/subgroups.py change it."""

    __slots__ = (
        "abandoned",
        "default",
        "exit_note",
        "group_count",
        "groups",
        "local_counts",
        "mark_forms",
        "membership",
        "owns_store",
        "reported",
        "stack_signal",
        "stops",
    )

    def __init__(self) -> None:
        super().__init__()
        #: The group of all ranks; None before init_process_group and after destroy.
        self.default: ProcessGroup | None = None
        #: Every living group of this rank by name, in the order of creation.
        self.groups: dict[str, ProcessGroup] = {}
        #: Names of groups that all ranks create together are numbers; the next one.
        self.group_count = 0
        #: How often each set of ranks made a group by local synchronization.
        self.local_counts: dict[tuple[int, ...], int] = {}
        #: This rank's place among all ranks, with the store of all groups' keys.
        self.membership: Membership | None = None
        #: Whether init_process_group opened the store, so that destroy closes it.
        self.owns_store = False
        #: The names of the groups that ranks made differently, as far as this rank was told.
        self.reported: set[str] = set()
        #: While there are groups.
        self.exit_note: HasCancel | None = None
        #: What marks of one name have in common in the record.
        self.mark_forms: dict[str, Form] = {}
        #: None: another rank's thread does it.
        self.stack_signal: HasClose | None = None
        #: None as long as nobody has asked for that.
        self.stops: Stops | None = None
        #: The groups that the program has let go of; None: nobody looks.
        self.abandoned: AbandonedGroups | None = None

    def require_default(self) -> ProcessGroup:
        """Return the default group, or say how to get one."""
        if self.default is None:
            raise not_initialized()
        return self.default


current_world: ContextVar[World] = ContextVar("distdbg_world", default=World())  # noqa: B039


def current() -> World:
    """Return the World of the calling thread."""
    return current_world.get()


def world_of(group: ProcessGroup) -> World:
    """Return the World that a group is one of."""
    assert isinstance(group.world, World)  # only a World makes groups
    return group.world


def _rank_here() -> int | None:
    """The global rank of the calling thread, for its lines in the log."""
    default = observed().default
    return None if default is None else default.ranks[default.rank()]


set_rank_source(_rank_here)
set_context_source(current)


#: The World beside another library's groups, where one is watched (torch_bridge/).
_watching: list[World] = []


def set_watching(world: World | None) -> None:
    """Say which World is beside the groups of another library; None: none is any more."""
    _watching[:] = [] if world is None else [world]


def observed() -> World:
    """Return the World whose record takes the program's marks: its own, or the one that watches it."""
    world = current_world.get()
    return _watching[0] if _watching and world.default is None else world


@contextmanager
def use(world: World) -> Iterator[World]:
    """Make `world` the current one of this thread until the block ends."""
    token = current_world.set(world)
    try:
        yield world
    finally:
        current_world.reset(token)


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Give the ops of this block a name of your own in records and messages."""
    recorder = current().recorder
    if recorder is None:
        yield
        return
    before = recorder.comm
    recorder.set_comm(name)
    try:
        yield
    finally:
        recorder.set_comm(before)
