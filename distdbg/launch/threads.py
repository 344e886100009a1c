"""N ranks as threads of one process, for notebooks and tests: nothing is started, nothing pickled.

Every thread has a World of its own and finds its default group ready. The threads share the GIL,
and whatever the program shares between its threads; a rank that crashes takes all along. Real
isolation needs `spawn`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from distdbg.errors import DistError, DistStoreError, OpTimeout, UsageError, format_ranks
from distdbg.record.durations import duration_text
from distdbg.runtime.process import world as worlds
from distdbg.runtime.process.debugger_seam import hold_on_error
from distdbg.runtime.process.destroy import destroy_process_group
from distdbg.runtime.process.exit_reason import leave
from distdbg.runtime.process.init import init_process_group, is_initialized
from distdbg.runtime.store import HashStore

Result = TypeVar("Result")

#: How long ranks may take to end after their groups were aborted.
_UNWIND_S = 2.0


def run_threads(
    fn: Callable[..., Result], world_size: int, *args: object, timeout_s: float | None = None
) -> list[Result]:
    """Call `fn(*args)` on `world_size` ranks, each a thread, and return the results by rank.

    Inside, `get_rank()` and all collectives work at once. When a rank raises, the others are
    released from whatever op they wait in, and its exception is raised here with a note naming the
    rank.
    Threads that `fn` itself starts belong to no rank. OpTimeout after `timeout_s` names the ranks
    that had not returned and where they are.
    """
    if world_size < 1:
        raise UsageError(f"run_threads: world_size is {world_size}; at least one rank is needed")
    return _Run(fn, world_size, args).wait(timeout_s)


class _EndableStore(HashStore):
    """A store whose waits end when the run does."""

    def __init__(self) -> None:
        super().__init__()
        self._end: str | None = None

    def end(self, reason: str) -> None:
        with self._changed:
            self._end = reason
            self._changed.notify_all()

    def _wait_until(self, absent: Callable[[], list[str]], timeout_s: float) -> None:
        # An end makes nothing absent any more, so the wait is over; how it ended is looked at then.
        super()._wait_until(lambda: [] if self._end is not None else absent(), timeout_s)
        if self._end is not None and absent():
            raise DistStoreError(f"{self._label()} has ended: {self._end}")


class _Run:
    def __init__(
        self, fn: Callable[..., Result], world_size: int, args: tuple[object, ...]
    ) -> None:
        self._fn = fn
        self._args = args
        self._world_size = world_size
        self._store = _EndableStore()
        self._worlds = [worlds.World() for _ in range(world_size)]
        self._results: dict[int, object] = {}
        self._failures: list[tuple[int, BaseException]] = []
        self._is_ending = False
        #: Protects _failures, _results and _is_ending; notified when a rank has ended.
        self._changed = threading.Condition()
        self._threads = [
            # Daemons: a rank that cannot be released must not keep the interpreter from ending.
            threading.Thread(target=self._run_rank, args=(r,), name=f"rank {r}", daemon=True)
            for r in range(world_size)
        ]

    def wait(self, timeout_s: float | None) -> list[Result]:
        started = time.monotonic()
        for thread in self._threads:
            thread.start()
        try:
            with self._changed:
                is_done = self._changed.wait_for(self._is_over, timeout_s)
        except BaseException:
            self._abort("run_threads was interrupted")
            self._unwind()
            raise
        if not is_done:
            error = self._timeout_error(time.monotonic() - started)
            self._abort("run_threads ran into its timeout")
            self._unwind()
            stuck = [rank for rank, thread in enumerate(self._threads) if thread.is_alive()]
            if stuck:
                error.details.append(f"still running: {_ranks(stuck)}")
            raise error
        self._unwind()
        if self._failures:
            rank, first = self._failures[0]
            first.add_note(f"raised by rank {rank} of {self._world_size} (run_threads)")
            raise first
        return [self._results[rank] for rank in range(self._world_size)]  # type: ignore[misc]  # fn made them

    def _run_rank(self, rank: int) -> None:
        with worlds.use(self._worlds[rank]):
            try:
                init_process_group(store=self._store, rank=rank, world_size=self._world_size)
                result = self._fn(*self._args)
                leave(self._worlds[rank])  # raises where the program makes warnings errors
            except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
                if not self._is_ending:
                    hold_on_error(error)
                with self._changed:
                    self._failures.append((rank, error))
                    self._changed.notify_all()
                leave(self._worlds[rank], error, at_once=True)
                self._abort(f"rank {rank} raised {type(error).__name__}")
                self._leave()
                return
            self._leave()
        with self._changed:
            self._results[rank] = result
            self._changed.notify_all()

    def _leave(self) -> None:
        if is_initialized():
            # What matters about the groups has been said by the ops on them.
            with suppress(DistError):
                destroy_process_group()

    def _is_over(self) -> bool:
        return bool(self._failures) or len(self._results) == self._world_size

    def _abort(self, reason: str) -> None:
        with self._changed:
            if self._is_ending:
                return
            self._is_ending = True
        for world in self._worlds:
            # The rank itself may be creating or leaving groups: work on a copy.
            for group in list(world.groups.values()):
                with suppress(DistError):
                    group.engine.abort(reason)
        self._store.end(reason)  # releases ranks that are still meeting

    def _unwind(self) -> None:
        deadline = time.monotonic() + _UNWIND_S
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    def _timeout_error(self, waited_s: float) -> OpTimeout:
        frames = sys._current_frames()
        missing = [rank for rank in range(self._world_size) if rank not in self._results]
        details = []
        for rank in missing[:8]:
            frame = frames.get(self._threads[rank].ident or 0)
            # The caller's line says more than ours: skip the frames of this package.
            while frame is not None and frame.f_globals.get("__name__", "").startswith("distdbg."):
                frame = frame.f_back
            if frame is not None:
                code = frame.f_code
                details.append(
                    f"rank {rank} is at {code.co_filename}:{frame.f_lineno} ({code.co_qualname})"
                )
        return OpTimeout(
            f"run_threads: {_ranks(missing)} of {self._world_size} "
            f"did not return within {duration_text(waited_s)}",
            missing=missing,
            arrived=sorted(self._results),
            waited_s=waited_s,
            ranks=range(self._world_size),
            details=details,
        )


def _ranks(ranks: list[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}"
