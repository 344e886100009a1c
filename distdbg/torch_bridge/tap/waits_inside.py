"""Whether a thread waits in C++, where Python cannot see it: in a backward pass, or for a tensor that a
functional collective has not made yet.

DDP's reducer starts its ops while a pass runs and waits for them at its end. A thread that is in there,
sleeps, and has used no CPU for a while, waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

#: So long without CPU time before it counts as waiting, and how much is none.
_STILL_S = 0.5
_NONE_NS = 10_000_000
#: The kernel's clock of the CPU time of one thread, beside the thread's complement.
_THREAD_CLOCK = 6


class WaitsInside:
    """Threads that are in one of the functions that `around` has made; within others they count as one."""

    def __init__(self) -> None:
        #: By thread, since when it is in. Each thread touches its own alone.
        self._inside: dict[int, float] = {}
        #: Since when it is in, the CPU time that it had used when that last moved, and when that was.
        self._seen: dict[int, tuple[float, int, float]] = {}

    def around(
        self, real: Callable[..., Any], explain: Callable[[], Exception | None]
    ) -> Callable[..., Any]:
        """The function; who is in it is in here. What `explain` returns is better than its RuntimeError."""
        inside, this_thread, now = self._inside, threading.get_native_id, time.monotonic

        @wraps(real)
        def function(*args: Any, **kwargs: Any) -> Any:
            tid = this_thread()
            is_first = tid not in inside
            if is_first:
                inside[tid] = now()
            try:
                try:
                    return real(*args, **kwargs)
                finally:
                    if is_first:
                        del inside[tid]
            except RuntimeError as error:
                better = explain()
                if better is None or better is error:
                    raise
                raise better from error

        return function

    def blocked_thread(self) -> int:
        """One that has slept in there since a while, or 0; asked again and again by one thread."""
        before, self._seen = self._seen, {}
        now, found = time.monotonic(), 0
        for tid, entered in list(self._inside.items()):
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
