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
from typing import TYPE_CHECKING

from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.errors import UsageError
from distdbg.log.logs import set_rank_source

if TYPE_CHECKING:
    from pathlib import Path

    from distdbg.log.log_levels import DebugLevel
    from distdbg.native import Control, Form, Recorder
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.handles.watcher import Watcher
    from distdbg.runtime.latent_errors.abandoned import Abandoned
    from distdbg.runtime.latent_errors.unwaited import Unwaited
    from distdbg.runtime.process.debugger_seam import Stops
    from distdbg.runtime.process.exit_reason import ExitNote
    from distdbg.runtime.process.stack_signal import StackSignal
    from distdbg.runtime.rendezvous import Membership


class World:
    """All groups of one rank. Only init.py and api/subgroups.py change it."""

    __slots__ = (
        "__weakref__",
        "abandoned",
        "batch",
        "control",
        "debug_level",
        "default",
        "exit_note",
        "group_count",
        "groups",
        "is_level_chosen",
        "local_counts",
        "mark_forms",
        "membership",
        "native_control",
        "owns_store",
        "ranks_here",
        "recorder",
        "run_folder",
        "stack_signal",
        "stops",
        "told",
        "unwaited",
        "watcher",
    )

    def __init__(self) -> None:
        #: The group of all ranks; None before init_process_group and after destroy.
        self.default: ProcessGroup | None = None
        #: Every living group of this rank by name, in the order of creation.
        self.groups: dict[str, ProcessGroup] = {}
        #: Names of groups that all ranks create together are numbers; the next one.
        self.group_count = 0
        #: How often each set of ranks made a group by local synchronization.
        self.local_counts: dict[tuple[int, ...], int] = {}
        #: None: not asked yet, so the environment decides.
        self.debug_level: DebugLevel | None = None
        #: Whether somebody chose the level, or it is the default.
        self.is_level_chosen = False
        #: This rank's seat among all ranks, with the store of all groups' keys.
        self.membership: Membership | None = None
        #: Whether init_process_group opened the store, so that destroy closes it.
        self.owns_store = False
        #: How many ranks share this host's cores.
        self.ranks_here = 1
        #: The names of the groups that ranks made differently, as far as this rank was told.
        self.told: set[str] = set()
        #: Says at the end of the process why this rank leaves its groups; while there are some.
        self.exit_note: ExitNote | None = None
        #: Completes futures in the background; made at first use.
        self.watcher: Watcher | None = None
        #: The writer of this rank's record; None before init_process_group, or when measuring.
        self.recorder: Recorder | None = None
        #: What marks of one name have in common in the record.
        self.mark_forms: dict[str, Form] = {}
        #: The loop over `dist.batches` that this rank is in, and the number of its batch.
        self.batch: tuple[object, int] | None = None
        #: The time that deadlines of this rank's waits are counted in, and whether the job is over.
        self.control: JobClock = FREE_CLOCK
        #: The same page for native waits; None where there is none.
        self.native_control: Control | None = None
        #: Where the records of all ranks of this host are; None when they are not on disk.
        self.run_folder: Path | None = None
        #: Answers an observer that wants this process's stacks; None: another rank's thread does.
        self.stack_signal: StackSignal | None = None
        #: Where this rank stops in a debugger; None as long as nobody has asked for that.
        self.stops: Stops | None = None

        #: The asynchronous ops that nobody has waited for; None: nobody looks.
        self.unwaited: Unwaited | None = None
        #: The groups that the program has let go of; None: nobody looks.
        self.abandoned: Abandoned | None = None

    def require_default(self) -> ProcessGroup:
        """Return the default group, or say how to get one."""
        if self.default is None:
            raise not_initialized()
        return self.default

    def get_watcher(self) -> Watcher:
        """Return the thread that completes futures, started at first use."""
        if self.watcher is None:
            from distdbg.runtime.handles.watcher import Watcher

            self.watcher = Watcher(self.control)
        return self.watcher


def not_initialized() -> UsageError:
    """Return the error for any use of the default group before it exists."""
    return UsageError(
        "the default process group has not been initialized",
        hint="call init_process_group first; a thread of your own needs world.use(...) "
        "when ranks run as threads",
    )


current_world: ContextVar[World] = ContextVar("distdbg_world", default=World())  # noqa: B039


def current() -> World:
    """Return the World of the calling thread."""
    return current_world.get()


def _rank_here() -> int | None:
    """The global rank of the calling thread, for its lines in the log."""
    default = current_world.get().default
    return None if default is None else default.ranks[default.rank()]


set_rank_source(_rank_here)


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
