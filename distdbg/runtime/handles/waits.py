"""Records which threads wait in Python for an op in flight.

Waits in native code (`Work.wait` of our own engine) are written there. Only a wait for what has not ended
is worth the words; a thread that merely looks after ops for others hides its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distdbg.native import Recorder
from distdbg.ops.engine import Pending


class waiting_for:
    """In this block the thread waits for op `number` of the record; 0: for none that is known.

    A class, so that the line that waits is the nearest one that is not of this package.
    """

    __slots__ = ("_is_limited", "_number", "_place", "_recorder")

    def __init__(self, recorder: Recorder | None, number: int, is_limited: bool = False) -> None:
        """`is_limited`: not for longer than the program has said for this wait alone."""
        self._recorder = recorder
        self._number = number
        self._is_limited = is_limited
        self._place = -1

    def __enter__(self) -> None:
        if self._recorder is not None:
            self._place = self._recorder.begin_wait(self._number, is_limited=self._is_limited)

    def __exit__(self, *_: object) -> None:
        if self._recorder is not None:
            self._recorder.end_wait(self._place)


@contextmanager
def not_waiting() -> Iterator[None]:
    """In this block the thread's waits are none of the program's."""
    Recorder.hide_waits(True)
    try:
        yield
    finally:
        Recorder.hide_waits(False)


def op_number(pending: Pending) -> int:
    """The number of the op in the record; 0 where the engine does not say."""
    number = getattr(pending, "number", 0)
    return number if isinstance(number, int) else 0


def has_failed(pending: Pending) -> bool:
    """Return whether an op is known to have ended with an error; asks nobody else."""
    ask = getattr(pending, "has_failed", None)
    return ask is not None and bool(ask())
