"""Gives back what a record has reserved on disk and never used: its pages of zeros become holes.

A record reserves all its space at the start, so that a full disk cannot end a rank later. Once its rank
writes no more, the rest is of no use. The size of the file and what is read from it stay the same.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

_KEEP_SIZE: Final = 1
_PUNCH_HOLE: Final = 2
_CHUNK_NBYTES: Final = 64 << 10
_ZEROS: Final = bytes(_CHUNK_NBYTES)


def give_back(path: Path | str | bytes) -> None:
    """Free what a finished record has reserved; a file system that has no holes keeps it."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            for begin, end in _runs_of_zeros(fd):
                if _fallocate()(fd, _PUNCH_HOLE | _KEEP_SIZE, begin, end - begin):
                    return
        finally:
            os.close(fd)


def _runs_of_zeros(fd: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = 0
    while chunk := os.pread(fd, _CHUNK_NBYTES, at):
        if len(chunk) == _CHUNK_NBYTES and chunk == _ZEROS:
            if found and found[-1][1] == at:
                found[-1] = found[-1][0], at + len(chunk)
            else:
                found.append((at, at + len(chunk)))
        at += len(chunk)
    return found


@cache
def _fallocate() -> Any:
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function
