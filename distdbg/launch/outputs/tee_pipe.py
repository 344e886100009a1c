"""The pipe into which a rank prints what is kept and shown: into its file, and from there to the console.

    rank -> pipe -> file -> tails -> console, file of selected lines
    rank -> pipe -> what the file does not take -> tails

A full disk costs the file, and nobody else.

A rank that wrote into the file itself would fail by an error of its own print(). A console that
takes nothing does not hold up the rank while its file can be written: the file is the buffer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from distdbg.launch.outputs.tail import LogTail

_CHUNK_NBYTES = 1 << 16
#: What is kept for a console beyond the file; then the rank waits, as it would at the console itself.
_MOST_BEYOND_NBYTES = 1 << 20


class TeePipe:
    """The reading end, and the file; both are this object's own."""

    def __init__(
        self,
        fd: int,
        path: Path,
        tails: Sequence[LogTail],
        on_loss: Callable[[Path, OSError, int], None],
    ) -> None:
        """`on_loss` is told of bytes that the file did not take."""
        self._fd = fd
        self._path = path
        self._tails = tails
        self._on_loss = on_loss
        self._file_fd = -1
        self._nbytes = 0
        """Of the file."""
        self.is_over = False
        """Whether nobody can write any more."""
        # Appending, as a rank that writes into its file itself: whoever empties it meanwhile leaves no hole.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._file_fd = os.open(path, flags, 0o600)

    def fileno(self) -> int:
        return self._fd

    @property
    def is_full(self) -> bool:
        """Whether the console has to take something before the rank may go on."""
        return any(tail.beyond_nbytes > _MOST_BEYOND_NBYTES for tail in self._tails)

    def step(self) -> bool:
        """Pass on what there is, up to a chunk; whether there was anything."""
        if self.is_over or self.is_full:
            return False
        try:
            data = os.read(self._fd, _CHUNK_NBYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.is_over = True
            return False
        left = self._write(data)
        if left:
            for tail in self._tails:
                tail.put_beyond(self._nbytes, left)
        return True

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._fd)
        with suppress(OSError):  # what a network file system had kept back is lost
            os.close(self._file_fd)

    def _write(self, data: bytes) -> bytes:
        """Into the file; what it has not taken."""
        left = memoryview(data)
        try:
            while left:
                count = os.write(self._file_fd, left)
                self._nbytes += count
                left = left[count:]
        except OSError as error:
            self._on_loss(self._path, error, len(left))
        return bytes(left)
