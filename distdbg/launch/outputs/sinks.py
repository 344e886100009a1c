"""Where lines go: the console, or a file of selected lines. Neither ever makes its caller wait for long."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

#: A pipe that has room takes that much without waiting (PIPE_BUF), and in one piece.
_PIECE_NBYTES = 4096


class Sink(Protocol):
    def put(self, lines: bytes) -> None:
        """Take all of them; what cannot be written yet is kept."""
        ...

    def flush(self, wait_ms: int) -> bool:
        """Write what is kept, waiting for that long; whether nothing is left."""
        ...

    def close(self) -> None: ...


class OutputDescriptor:
    """A descriptor of the launcher: a terminal, pipe or file that others write to as well.

    Whoever reads it may stop to read: then lines stay here, and their rank's file grows meanwhile.
    """

    def __init__(self, fd: int) -> None:
        self._own_fd = _reopen(fd)
        self._fd = fd if self._own_fd is None else self._own_fd
        self._kept = memoryview(b"")
        self._is_gone = False
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def put(self, lines: bytes) -> None:
        if not self._is_gone:
            self._kept = memoryview(bytes(self._kept) + lines if self._kept else lines)

    def flush(self, wait_ms: int) -> bool:
        while self._kept:
            ready = self._poll.poll(wait_ms)
            if not ready:
                return False
            if not ready[0][1] & select.POLLOUT:  # its reader is gone, or the descriptor is closed
                return self._give_up()
            try:
                written = os.write(self._fd, self._next_piece())
            except BlockingIOError:
                return False
            except OSError:
                return self._give_up()
            self._kept = self._kept[written:]
        return True

    def close(self) -> None:
        """What is left is not written; the launcher's descriptor stays open."""
        self._give_up()
        if self._own_fd is not None:
            os.close(self._own_fd)
            self._own_fd = None

    def _next_piece(self) -> bytes:
        piece = bytes(self._kept[:_PIECE_NBYTES])
        end = piece.rfind(b"\n") + 1
        # Whole lines, so that what ranks write to the same console themselves does not cut one.
        return piece[:end] if end else piece

    def _give_up(self) -> bool:
        self._is_gone = True
        self._kept = memoryview(b"")
        return True


def _reopen(fd: int) -> int | None:
    """The same pipe or terminal once more, and not blocking; None where that cannot be had.

    To make the launcher's own descriptor so would change it for all who share it: ranks, a shell.
    """
    try:
        kind = os.fstat(fd).st_mode
        if not (stat.S_ISFIFO(kind) or stat.S_ISCHR(kind)):
            return None
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{fd}", flags)
    except OSError:  # of another user, or a pipe without a reader
        return None


class LineFile:
    """A file of its own for lines that were selected."""

    def __init__(self, path: Path, on_trouble: Callable[[OSError], None]) -> None:
        self._on_trouble = on_trouble
        self._fd = -1
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            on_trouble(error)

    def put(self, lines: bytes) -> None:
        left = memoryview(lines)
        try:
            while left and self._fd >= 0:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            self._on_trouble(error)

    def flush(self, wait_ms: int) -> bool:
        return True

    def close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):  # what a network file system had kept back is lost
                os.close(self._fd)
            self._fd = -1
