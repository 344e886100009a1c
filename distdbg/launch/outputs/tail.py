"""Follows one log file into one sink. The file is the buffer: what the sink cannot take stays there."""

from __future__ import annotations

import os
from contextlib import suppress

from distdbg.launch.outputs.lines import Lines
from distdbg.launch.outputs.sinks import Sink

_CHUNK_NBYTES = 1 << 16


class Tail:
    """One log file on its way; `fd` is this object's own."""

    def __init__(self, fd: int, lines: Lines, sink: Sink) -> None:
        self._fd = fd
        self._lines = lines
        self._offset = 0
        self.sink = sink

    def step(self) -> bool:
        """Pass on what there is, up to a chunk; whether there was anything."""
        try:
            data = os.pread(self._fd, _CHUNK_NBYTES, self._offset)
        except OSError:
            return False  # a file system that went away: the ranks notice as well
        if not data:
            return False
        self._offset += len(data)
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
