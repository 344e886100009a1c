"""What a rank prints into its log file, and from there into sinks.

    rank -> file -> tails -> console, file of selected lines
    rank -> pipe -> file -> tails                               a rank whose output is kept and shown
    rank -> pipe -> what the file does not take -> tails

The file is the buffer: what a console does not take stays there, and does not hold up the rank. A rank that
wrote into the file itself would fail by an error of its own print() when the disk is full; behind a pipe that
costs the file, and nobody else.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from distdbg.launch.outputs.lines import LineCutter
from distdbg.launch.outputs.sinks import Sink

_CHUNK_NBYTES = 1 << 16


#: What is kept for a console beyond the file; then the rank waits, as it would at the console itself.
_MAX_BEYOND_NBYTES = 1 << 20


class LogTail:
    """One log file on its way; `fd` is this object's own."""

    def __init__(self, fd: int, lines: LineCutter, sink: Sink) -> None:
        self._fd = fd
        self._lines = lines
        self._offset = 0
        #: What the file did not take, and behind how much of it that comes.
        self._beyond: deque[tuple[int, bytes]] = deque()
        self.beyond_nbytes = 0
        self.sink = sink

    def put_beyond(self, offset: int, data: bytes) -> None:
        """Bytes that are to be passed on, and are not in the file."""
        self._beyond.append((offset, data))
        self.beyond_nbytes += len(data)

    def step(self) -> bool:
        """Pass on what there is, up to a chunk; whether there was anything."""
        most = _CHUNK_NBYTES
        if self._beyond:
            most = min(most, self._beyond[0][0] - self._offset)
        try:
            data = os.pread(self._fd, most, self._offset) if most > 0 else b""
        except OSError:
            data = b""  # a file system that went away: the ranks notice as well
        self._offset += len(data)
        if not data and self._beyond:  # all of the file is out, or somebody has emptied it
            data = self._beyond.popleft()[1]
            self.beyond_nbytes -= len(data)
        if not data:
            return False
        lines = self._lines.feed(data)
        if lines:
            self.sink.put(lines)
        return True

    def finish(self) -> None:
        """Pass on the last line, which has no end."""
        lines = self._lines.finish()
        if lines:
            self.sink.put(lines)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._fd)


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
        """The size of the file."""
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
        return any(tail.beyond_nbytes > _MAX_BEYOND_NBYTES for tail in self._tails)

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
