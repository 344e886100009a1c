"""JobClock: the time of the job, and whether the job was aborted, for waits in Python.

All deadlines of such waits are points of `now()` or `now_ns()`. Native waits read the same page by
themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from distdbg.control.holds import hold_of
from distdbg.control.page import ControlPage
from distdbg.control.words import to_error
from distdbg.errors import RecordError

#: How long a wait sleeps at most, so that within 50 ms it has seen what the page says.
SLICE_S: Final = 0.04
#: How often whoever waits while the clock is paused looks whether those that hold it still live.
_SWEEP_S: Final = 1.0


class JobClock:
    """The clock of one job; without a page it is the monotonic clock, and nobody ends the job."""

    __slots__ = ("_behind_ns", "_holds", "_lock", "_page", "_swept")

    def __init__(self, page: ControlPage | None = None) -> None:
        self._page = page
        #: All pauses of a clock until it was closed, so that it does not jump.
        self._behind_ns = 0
        self._lock = threading.Lock()  # protects _holds
        #: How many prompts of each rank are open in this process.
        self._holds: dict[int, int] = {}
        self._swept = 0.0

    @property
    def is_free(self) -> bool:
        """Whether there is no page, so that nothing has to be looked at."""
        return self._page is None

    @property
    def is_paused(self) -> bool:
        page = self._page
        return page is not None and page.is_paused

    def now_ns(self) -> int:
        """The job time; comparable with other job times only."""
        page = self._page
        return time.monotonic_ns() - self._behind_ns if page is None else page.job_ns()

    def now(self) -> float:
        """The job time in seconds."""
        return self.now_ns() / 1e9

    def nap_s(self, left_s: float, slice_s: float) -> float:
        """How long to sleep before the next look, when `left_s` of job time are left.

        A clock that stands brings the deadline no nearer, and is let go of for those that died holding
        it: where no agent lives, nobody else would.
        """
        page = self._page
        if page is None or not page.is_paused:
            return max(min(left_s, slice_s), 0.0)
        now = time.monotonic()
        if now - self._swept >= _SWEEP_S:
            self._swept = now
            page.sweep()
        return slice_s

    def hold(self, rank: int) -> None:
        """Let the clock of the job stand: this rank sits at a prompt. Each is given back once.

        Without a page nothing happens; nor where the page has no room, which takes so many others that
        the clock is paused anyway.
        """
        with self._lock:
            self._holds[rank] = self._holds.get(rank, 0) + 1
            if self._holds[rank] == 1 and self._page is not None:
                with suppress(RecordError):
                    self._page.hold(hold_of(rank))

    def release(self, rank: int) -> None:
        """Give it back; nothing happens where it is not held."""
        with self._lock:
            left = self._holds.get(rank, 0) - 1
            if left > 0:
                self._holds[rank] = left
                return
            if self._holds.pop(rank, None) is not None and self._page is not None:
                self._page.release(hold_of(rank))

    @contextmanager
    def held(self, rank: int) -> Iterator[None]:
        """In this block the clock of the job stands."""
        self.hold(rank)
        try:
            yield
        finally:
            self.release(rank)

    @property
    def break_generation(self) -> int:
        """Another number: other breakpoints are armed. 0 without a page, and before the first."""
        page = self._page
        return 0 if page is None else page.break_generation

    def rules(self) -> tuple[int, bytes]:
        """The armed breakpoints as JSON, and their generation; odd: they are just being written."""
        page = self._page
        return (0, b"") if page is None else page.rules()

    def check(self, *, kind: str = "", seq: int = -1, group: str = "", op: str = "") -> None:
        """Raise JobAborted when the job was ended; `op` is what this rank is in."""
        page = self._page
        if page is None or not page.is_aborted:
            return
        words = page.abort_words()
        raise to_error(words or b"", kind=kind, seq=seq, group=group, op=op)

    def close(self) -> None:
        """Let go of the page: from now on the clock is free, and goes on from where it is.

        A thread that reads the page just now keeps it open until it has.
        """
        page = self._page
        if page is not None:
            with self._lock:
                for rank in self._holds:
                    page.release(hold_of(rank))
                self._holds.clear()
            self._behind_ns = time.monotonic_ns() - page.job_ns()
            self._page = None


#: The clock of a process that is in no job.
FREE_CLOCK: Final = JobClock()
