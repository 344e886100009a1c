"""Future: a value that comes later, with torch.futures.Future's methods.

Callbacks run on the thread that completes the future, or at once when it is already complete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar, cast

from distdbg.errors import UsageError

T = TypeVar("T")
S = TypeVar("S")

_log = logging.getLogger("distdbg.runtime")


class Future(Generic[T]):
    """Set once, by set_result or set_exception; waited for by any number of threads."""

    def __init__(self, *, devices: object = None) -> None:
        # `devices` is accepted as torch does; host memory needs no synchronization.
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], object]] = []
        #: Around a wait that has to wait, when it is known for which op: tells the record.
        self.say_wait: Callable[[], AbstractContextManager[None]] = nullcontext

    def done(self) -> bool:
        """Return whether the future has a result or an exception."""
        return self._event.is_set()

    def wait(self) -> T:
        """Block until the future is complete; return its value or raise its exception."""
        if not self._event.is_set():
            with self.say_wait():
                self._event.wait()
        return self._outcome()

    def value(self) -> T:
        """Return the value of a completed future without blocking."""
        if not self._event.is_set():
            raise UsageError("Future.value() was called before the future is complete")
        return self._outcome()

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def set_result(self, result: T) -> None:
        """Complete the future with a value and run its callbacks."""
        self._complete(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Complete the future with an exception and run its callbacks."""
        if not isinstance(result, BaseException):
            raise UsageError(f"{result!r} is not an exception; it is {type(result).__name__}")
        self._complete(None, result)

    def _complete(self, value: T | None, error: BaseException | None) -> None:
        if not self.offer(value, error):
            raise UsageError("the future is already complete; it can be set only once")

    def offer(self, value: T | None, error: BaseException | None) -> bool:
        """Complete the future unless somebody has; return whether this call did."""
        with self._lock:
            if self._event.is_set():
                return False
            self._value = value
            self._error = error
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)
        return True

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Run `callback(self)` when complete; what it raises is logged and dropped."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        self._call(callback)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """Return a future for what `callback(self)` returns or raises."""
        after: Future[S] = Future()
        after.say_wait = self.say_wait

        def run(future: Future[T]) -> None:
            try:
                result = callback(future)
            except BaseException as error:  # noqa: BLE001 - whatever it is belongs to `after`
                after.set_exception(error)
            else:
                after.set_result(result)

        self.add_done_callback(run)
        return after

    def _call(self, callback: Callable[[Future[T]], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - the hook runner: one bad callback must not stop the others
            _log.exception("a callback of a Future raised")
