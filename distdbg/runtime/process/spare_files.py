"""Descriptors for the last words of a rank: one that dies of too many open files has none left for them.

Its error file, its record's end and the sources of its traceback take one at a time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

_COUNT: Final = 3
_spare: list[int] = []
#: The process that keeps them; a child that was forked has them too.
_pid = 0


def keep_spare_files() -> None:
    """From here on. Idempotent."""
    global _pid
    if _pid == os.getpid():
        return
    _pid = os.getpid()
    with suppress(OSError):  # there are none left by now
        while len(_spare) < _COUNT:
            _spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def free_spare_files() -> None:
    """For what a process that ends has to say."""
    if _pid != os.getpid():
        return
    while _spare:
        with suppress(OSError):
            os.close(_spare.pop())
