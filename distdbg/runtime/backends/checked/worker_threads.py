"""Threads for calls that may never return, while the caller watches.

Another backend may hang in any call. On the caller's own thread nothing could be done about
it: so the call is made by a `Hand`, and the caller waits for it in short slices and looks after the
peers in between. When it gives up, that thread is left behind with its call (it is a daemon).

Threads are kept for the next call and end by themselves when there is none for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from distdbg.errors import DistError

T = TypeVar("T")

#: How often the caller looks after its peers while it waits.
SLICE_S = 0.02
#: A thread that nobody needed for so long ends.
_IDLE_S = 1.0


class _Job(Generic[T]):
    """One call, and how it ended."""

    __slots__ = ("error", "function", "has_ended", "result")

    def __init__(self, function: Callable[[], T]) -> None:
        self.function = function
        self.result: T | None = None
        self.error: BaseException | None = None
        #: Locked until the call has ended: the cheapest thing to wait for.
        self.has_ended = threading.Lock()
        self.has_ended.acquire()

    def carry_out(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:  # noqa: BLE001 - raised by who waits
            self.error = error
        self.has_ended.release()


class WorkerThreads:
    """The threads of one group."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: Protects the three below.
        self._changed = threading.Condition()
        self._jobs: list[_Job[Any]] = []
        self._idle = 0
        self._is_closing = False
        self._threads: set[threading.Thread] = set()

    def carry_out(self, function: Callable[[], T], watch: Callable[[], None]) -> T:
        """Call `function` on another thread; what `watch` raises meanwhile ends the wait for it."""
        job = self._start(function)
        while not job.has_ended.acquire(timeout=SLICE_S):
            try:
                watch()
            except BaseException:
                if job.has_ended.acquire(blocking=False) and job.error is None:
                    break  # it has ended well just now
                raise
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value] # set, since there was no error

    def keep_watch(
        self, function: Callable[[], T], watch: Callable[[], None], release: Callable[[], None]
    ) -> T:
        """Call `function` on this thread while another one watches.

        What `watch` raises is raised here, as soon as `release` has made the function return.
        """
        ended = threading.Event()
        trouble: list[DistError] = []

        def look() -> None:
            while not ended.wait(SLICE_S):
                try:
                    watch()
                except DistError as error:
                    trouble.append(error)
                    release()
                    return

        job = self._start(look)
        try:
            result = function()
        except Exception as error:
            ended.set()
            job.has_ended.acquire()
            if trouble:
                raise trouble[0] from error
            raise
        finally:
            ended.set()
        job.has_ended.acquire()
        if trouble:
            raise trouble[0]
        return result

    def close(self, patience_s: float) -> None:
        """End the threads that have nothing to do, and wait a little for the others."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            threads = list(self._threads)
        until = time.monotonic() + patience_s
        for thread in threads:
            with suppress(RuntimeError):  # closed by one of them
                thread.join(max(0.0, until - time.monotonic()))

    def _start(self, function: Callable[[], T]) -> _Job[T]:
        # In the caller's context: the World it is in.
        job = _Job(partial(copy_context().run, function))
        with self._changed:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
                return job
            thread = threading.Thread(
                target=self._work, name=f"distdbg-hand {self._name}", daemon=True
            )
            self._threads.add(thread)
        thread.start()
        return job

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._jobs and not self._is_closing:
                    self._idle += 1
                    self._changed.wait_for(lambda: self._jobs or self._is_closing, _IDLE_S)
                    self._idle -= 1
                if not self._jobs:
                    self._threads.discard(threading.current_thread())
                    return
                job = self._jobs.pop(0)
            job.carry_out()
            del job  # and the arrays it holds
