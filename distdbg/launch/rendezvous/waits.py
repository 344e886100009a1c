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

    def look(self, words: Callable[[], str], ends_ns: int, how: str = "it gives up") -> None:
        """Say what is waited for, and how and when that ends, if it is time."""
        now_ns = time.monotonic_ns()
        if self._is_said or now_ns < self._say_ns:
            return
        self._is_said = True
        left_s = max(ends_ns - now_ns, 0) / 1e9
        print_error(f"distdbg run: {words()}; {how} in {duration_text(left_s)}")
