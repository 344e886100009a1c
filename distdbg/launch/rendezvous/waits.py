"""What a launcher tells a person while it waits for others, once that takes longer than a start should."""

from __future__ import annotations

import time
from collections.abc import Callable

from distdbg.command import print_error
from distdbg.record.durations import duration_text

_SAY_S = 3.0


class WaitNotice:
    """One line about one wait."""

    def __init__(self) -> None:
        self._say_ns = time.monotonic_ns() + int(_SAY_S * 1e9)
        self._is_said = False

    def look(self, words: Callable[[], str], deadline_ns: int) -> None:
        """Say what is waited for, and for how long, if it is time."""
        now_ns = time.monotonic_ns()
        if self._is_said or now_ns < self._say_ns:
            return
        self._is_said = True
        left_s = max(deadline_ns - now_ns, 0) / 1e9
        print_error(f"distdbg run: {words()}; it gives up in {duration_text(left_s)}")
