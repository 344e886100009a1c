"""Follows one log file into one sink. The file is the buffer: what the sink cannot take stays there."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress

from distdbg.launch.outputs.lines import LineCutter
from distdbg.launch.outputs.sinks import Sink

_CHUNK_NBYTES = 1 << 16


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
