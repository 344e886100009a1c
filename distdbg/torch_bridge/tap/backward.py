"""Whether a backward pass waits in C++, where Python cannot see it.

DDP's reducer starts its ops while a pass runs and waits for them at its end. A thread that is in a pass,
sleeps, and has used no CPU for a while is there.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import NamedTuple

#: So long without CPU time before it counts as waiting.
_STILL_S = 0.5


class Seen(NamedTuple):
    """A thread at one look."""

    state: str
    ticks: int


class Backward:
    """Entered by each pass: `with backward:`. Passes within passes count as one."""

    def __init__(self) -> None:
        self._depth = 0
        self._tid = 0
        self._last: Seen | None = None
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

    def is_blocked(self) -> bool:
        """Whether the pass has slept since a while; asked again and again by one thread."""
        seen = None if self._depth == 0 else look_at(self._tid)
        now = time.monotonic()
        if seen is None or seen.state != "S" or seen != self._last:
            self._last, self._since = seen, now
            return False
        return now - self._since >= _STILL_S


def look_at(tid: int) -> Seen | None:
    """The state of a thread of this process, and the CPU time that it has used."""
    try:
        with open(f"/proc/self/task/{tid}/stat", encoding="ascii", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return Seen(words[0], int(words[11]) + int(words[12]))
