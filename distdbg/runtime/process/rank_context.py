"""What one rank has that its stores, groups and ops share: the job's time, the record, the debug level.

It knows no group and no store, so all of them may know it. A World (world.py) is a RankContext with groups,
and says which one is that of the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from distdbg.log.log_levels import DebugLevel
    from distdbg.native import Control, Recorder
    from distdbg.runtime.handles.watcher import CompletionWatcher
    from distdbg.runtime.latent_errors.unwaited import UnwaitedOps


class RankContext:
    """What the ops of one rank are timed, recorded and checked by."""

    __slots__ = (
        "__weakref__",
        "batch",
        "control",
        "debug_level",
        "is_level_chosen",
        "native_control",
        "ranks_here",
        "recorder",
        "run_folder",
        "unwaited",
        "watcher",
    )

    def __init__(self) -> None:
        #: None: not asked yet, so the environment decides.
        self.debug_level: DebugLevel | None = None
        #: Whether somebody chose the level, or it is the default.
        self.is_level_chosen = False
        #: How many ranks share this host's cores.
        self.ranks_here = 1
        #: Completes futures in the background; made at first use.
        self.watcher: CompletionWatcher | None = None
        #: The writer of this rank's record; None before init_process_group, or when measuring.
        self.recorder: Recorder | None = None
        #: The time that deadlines of this rank's waits are counted in, and whether the job is over.
        self.control: JobClock = FREE_CLOCK
        #: The same page for native waits; None where there is none.
        self.native_control: Control | None = None
        #: Where the records of all ranks of this host are; None when they are not on disk.
        self.run_folder: Path | None = None
        #: The loop over `dist.batches` that this rank is in, and the number of its batch.
        self.batch: tuple[object, int] | None = None
        #: The asynchronous ops that nobody has waited for; None: nobody looks.
        self.unwaited: UnwaitedOps | None = None

    def get_watcher(self) -> CompletionWatcher:
        """Return the thread that completes futures, started at first use."""
        if self.watcher is None:
            from distdbg.runtime.handles.watcher import CompletionWatcher

            self.watcher = CompletionWatcher(self.control)
        return self.watcher


def not_initialized() -> UsageError:
    """Return the error for any use of the default group before it exists."""
    return UsageError(
        "the default process group has not been initialized",
        hint="call init_process_group first; a thread of your own needs world.use(...) "
        "when ranks run as threads",
    )


_of_process = RankContext()


def _without_worlds() -> RankContext:
    return _of_process


_find_current: Callable[[], RankContext] = _without_worlds


def set_context_source(find: Callable[[], RankContext]) -> None:
    """Say who knows the context of the calling thread: world.py does, as soon as it is imported."""
    global _find_current
    _find_current = find


def current_context() -> RankContext:
    """Return the context of the calling thread's rank."""
    return _find_current()
