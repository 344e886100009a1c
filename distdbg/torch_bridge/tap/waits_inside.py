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
        #: By thread, how many it is in and since when. Each thread touches its own alone.
        self._inside: dict[int, tuple[int, float]] = {}
        #: Since when it is in, the CPU time that it had used when that last moved, and when that was.
        self._seen: dict[int, tuple[float, int, float]] = {}

    def __enter__(self) -> None:
        tid = threading.get_native_id()
        depth, since = self._inside.get(tid) or (0, time.monotonic())
        self._inside[tid] = depth + 1, since

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tid = threading.get_native_id()
        depth, since = self._inside[tid]
        if depth > 1:
            self._inside[tid] = depth - 1, since
        else:
            del self._inside[tid]

    def blocked_thread(self) -> int:
        """One that has slept in there since a while, or 0; asked again and again by one thread."""
        before, self._seen = self._seen, {}
        now, found = time.monotonic(), 0
        for tid, (_, entered) in list(self._inside.items()):
            used_ns = cpu_time_ns(tid)
            if used_ns is None:
                continue
            known = before.get(tid)
            if known is None or known[0] != entered or used_ns - known[1] > _NONE_NS:
                known = entered, used_ns, now
            self._seen[tid] = known
            if not found and now - known[2] >= _STILL_S and state_of(tid) == "S":
                found = tid
        return found


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
