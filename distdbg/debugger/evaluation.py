"""Evaluation: one expression of a client, in a thread of its own.

Not in the rank's thread, not even while that waits at its prompt: an expression that never
ends would block the prompt. It is interrupted when its client leaves or stops waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from distdbg.debugger.interrupt import raise_in


class Evaluation:
    """Begun when it is made."""

    def __init__(self, work: Callable[[], None], on_end: Callable[[Evaluation], None]) -> None:
        """`on_end` is called in its thread."""
        self._work = work
        self._on_end = on_end
        self._lock = threading.Lock()  # protects the next: nothing is raised after the work
        self._is_working = True
        self._thread = threading.Thread(target=self._run, name="distdbg eval", daemon=True)
        self._thread.start()

    def break_off(self) -> None:
        """Raise KeyboardInterrupt in it, at its next bytecode; from any thread."""
        with self._lock:
            if self._is_working and self._thread.ident is not None:
                raise_in(self._thread.ident, KeyboardInterrupt)

    def _run(self) -> None:
        try:
            try:
                self._work()
            finally:
                with self._lock:
                    self._is_working = False
        except KeyboardInterrupt:  # it came when there was nothing left to break off
            self._is_working = False
        finally:
            self._on_end(self)
