"""Later: a value that whoever waits for it makes, on its own thread.

Not a Future, whose callbacks run on the thread that completes it: ops started there would come in another
order on each rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.errors import UsageError


class Later:
    """Has the methods of a Future that a chain of hooks needs."""

    __slots__ = ("_is_made", "_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._is_made = False
        self._value: Any = None

    def done(self) -> bool:
        """Return whether somebody has waited for it."""
        return self._is_made

    def wait(self) -> Any:
        """Make the value, at the first call, and return it."""
        if not self._is_made:
            self._value = self._make()
            self._is_made = True
        return self._value

    def value(self) -> Any:
        """Return the value, for which somebody has waited."""
        if not self._is_made:
            raise UsageError("Later.value() was called before wait()")
        return self._value

    def then(self, callback: Callable[[Later], Any]) -> Later:
        """Return what `callback(self)` gives when somebody waits for that."""

        def make() -> Any:
            self.wait()
            return callback(self)

        return Later(make)
