"""How long a wait in Python sleeps between two looks at MPI.

MPI makes progress while somebody asks for it, and nothing wakes a thread that waits for a message. With
more ranks than cores whoever asks without end keeps the core from the rank it waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from distdbg.control.clock import JobClock
from distdbg.errors import DistBackendError
from distdbg.record.durations import duration_text

#: Looks one after the other, where each rank has a core.
SPINS: Final = 100
#: Looks between which the core is only offered to others.
_YIELDS: Final = 50
_FIRST_S: Final = 20e-6
_GROWTH: Final = 1.2
#: The longest sleep; the page of the job is looked at after each.
LONGEST_S: Final = 1e-3


class Nap:
    """Called between two looks: `spins` times it does nothing, then it sleeps longer each time."""

    __slots__ = ("_left", "_next_s")

    def __init__(self, spins: int = 0) -> None:
        self._left = _YIELDS + spins
        self._next_s = _FIRST_S

    def __call__(self) -> None:
        if self._left:
            self._left -= 1
            if self._left < _YIELDS:
                time.sleep(0)
            return
        time.sleep(self._next_s)
        self._next_s = min(self._next_s * _GROWTH, LONGEST_S)


def await_request(
    request: Any,
    clock: JobClock,
    timeout_s: float,
    what: str,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Wait for a request of the set-up; DistBackendError says `what` did not come in time."""
    deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
    nap = Nap()
    while not request.Test():
        clock.check()
        look()
        if clock.now_ns() >= deadline_ns:
            raise DistBackendError(
                f"{what} within {duration_text(timeout_s)}",
                hint="all ranks that mpiexec started have to make their groups with backend 'mpi'",
            )
        nap()
