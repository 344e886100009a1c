"""How the set-up waits for MPI, and how often a wait looks before it sleeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from distdbg.control.clock import JobClock
from distdbg.errors import DistBackendError
from distdbg.record.durations import duration_text
from distdbg.runtime.backends.nap import PollBackoff

#: Looks one after the other, where each rank has a core.
SPINS: Final = 100


def await_request(
    request: Any,
    clock: JobClock,
    timeout_s: float,
    what: str,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Wait for a request of the set-up; DistBackendError says `what` did not come in time."""
    deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
    nap = PollBackoff()
    while not request.Test():
        clock.check()
        look()
        if clock.now_ns() >= deadline_ns:
            raise DistBackendError(
                f"{what} within {duration_text(timeout_s)}",
                hint="all ranks that mpiexec started have to make their groups with backend 'mpi'",
            )
        nap()
