"""Watcher: one daemon thread per World that notices ended ops that no thread waits for.

It is started by the first future that is asked for and ended when the world is destroyed. It only
polls and waits on `Pending`s; a Pending may be waited for by a user thread at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from distdbg.control.clock import JobClock
from distdbg.ops.engine import Pending, await_end
from distdbg.runtime.handles.waits import not_waiting

#: How long one op is waited for before the others are looked at again.
_SLICE_NS = 2_000_000


class CompletionWatcher:
    """Calls `on_end` once for each op handed to `watch`, on its own thread."""

    def __init__(self, clock: JobClock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._watched: list[tuple[Pending, Callable[[], None]]] = []
        self._is_closing = False
        self._thread = threading.Thread(target=self._loop, name="distdbg-watcher", daemon=True)
        self._thread.start()

    def watch(self, pending: Pending, on_end: Callable[[], None]) -> None:
        """Call `on_end()` when `pending` has ended, or when the watcher is closed."""
        with self._changed:
            if not self._is_closing:
                self._watched.append((pending, on_end))
                self._changed.notify()
                return
        on_end()

    def close(self) -> None:
        """End the thread; what is still watched is told so now."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _loop(self) -> None:
        turn = 0
        while True:
            with self._changed:
                while not self._watched and not self._is_closing:
                    self._changed.wait()
                ended = [entry for entry in self._watched if self._is_closing or entry[0].done()]
                self._watched = [entry for entry in self._watched if entry not in ended]
                is_closing = self._is_closing
                watched = self._watched
            for _, on_end in ended:
                on_end()
            if is_closing:
                return
            if ended:
                turn = 0  # the oldest first: ops of one group end in their order
            elif watched:
                self._wait_a_little(watched[turn % len(watched)][0])
                turn += 1

    def _wait_a_little(self, pending: Pending) -> None:
        if self._clock.is_paused:  # then no slice would end, and ops do all the same
            time.sleep(_SLICE_NS / 1e9)
            return
        with not_waiting():  # on_end asks for the outcome and reports it
            await_end(pending, self._clock.now_ns() + _SLICE_NS)
