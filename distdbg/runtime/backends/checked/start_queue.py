"""Lane: a thread that starts the asynchronous ops of one group in order, each after its agreement.

One thread per group, so that groups do not wait for one another: ranks may start ops on two groups in
different orders, and that is legal. The thread ends when it has been idle for a while.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

_IDLE_S = 1.0


class StartQueue:
    """A queue of functions, called one after the other on a thread; they must not raise."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: Protects the rest.
        self._changed = threading.Condition()
        self._queue: deque[Callable[[], None]] = deque()
        self._unfinished = 0
        self._thread: threading.Thread | None = None
        self._is_closing = False

    @property
    def is_idle(self) -> bool:
        """Whether all that was put has been called."""
        return self._unfinished == 0

    def put(self, function: Callable[[], None]) -> None:
        """Call it later, in the context of now."""
        context = copy_context()
        with self._changed:
            self._queue.append(lambda: context.run(function))
            self._unfinished += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name=f"distdbg-lane {self._name}", daemon=True
                )
                self._thread.start()
            else:
                self._changed.notify_all()

    def drain(self, timeout_s: float | None = None) -> bool:
        """Wait until all has been called."""
        with self._changed:
            return self._changed.wait_for(lambda: self._unfinished == 0, timeout_s)

    def close(self, patience_s: float) -> None:
        """End the thread, after what is queued."""
        with self._changed:
            self._is_closing = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closing, _IDLE_S)
                if not self._queue:
                    self._thread = None
                    return
                function = self._queue.popleft()
            function()
            del function  # and the arrays it holds
            with self._changed:
                self._unfinished -= 1
                self._changed.notify_all()
