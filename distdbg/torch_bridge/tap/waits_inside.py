"""Whether a thread waits in C++, where Python cannot see it: in a backward pass, or for a tensor that a
functional collective has not made yet.

DDP's reducer starts its ops while a pass runs and waits for them at its end. A thread that is in there,
sleeps, and has used no CPU for a while, waits.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

#: So long without CPU time before it counts as waiting, and how much is none.
_STILL_S = 0.5
_NONE_NS = 10_000_000
#: The kernel's clock of the CPU time of one thread, beside the thread's complement.
_THREAD_CLOCK = 6


class WaitsInside:
    """Entered by each pass, and each wait for a tensor: `with inside:`. Those within others count as one."""

    def __init__(self) -> None:
        self._depth = 0
        self._tid = 0
        self._used_ns: int | None = None
        self._since = 0.0

    def __enter__(self) -> None:
        self._depth += 1
        self._tid = threading.get_native_id()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1

    def blocked_thread(self) -> int:
        """The one that has slept in there since a while, or 0; asked again and again by one thread."""
        used_ns = None if self._depth == 0 else cpu_time_ns(self._tid)
        before_ns, now = self._used_ns, time.monotonic()
        if used_ns is None or before_ns is None or used_ns - before_ns > _NONE_NS:
            self._used_ns, self._since = used_ns, now
            return 0
        is_blocked = now - self._since >= _STILL_S and state_of(self._tid) == "S"
        return self._tid if is_blocked else 0


def cpu_time_ns(tid: int) -> int | None:
    """How much CPU time a thread of this process has used; None: it has ended."""
    try:
        return time.clock_gettime_ns(~tid << 3 | _THREAD_CLOCK)
    except OSError:
        return None


def state_of(tid: int) -> str:
    """The letter of the kernel for what a thread of this process does, S for sleep; '': it has ended."""
    try:
        with open(f"/proc/self/task/{tid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
