"""Follows one pipe, into which a rank writes, into a console. The pipe is the buffer: a rank whose
console takes nothing waits, as it would at the console itself."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from distdbg.launch.outputs.alike import EqualLines, prefix_of
from distdbg.launch.outputs.blocks import StreamBlocks
from distdbg.launch.outputs.sinks import Sink
from distdbg.record.traceback_text import is_full

_CHUNK_NBYTES = 1 << 16


class PipeTail:
    """The reading end; `fd` is this object's own and does not block."""

    def __init__(self, fd: int, rank: int, sink: Sink, alike: EqualLines) -> None:
        self._fd = fd
        self._rank = rank
        self._alike = alike
        #: What faulthandler printed of a crash in native code; b'' for nothing.
        self.crash = b""
        self._blocks = StreamBlocks(prefix_of(rank), is_full=is_full(), on_crash=self._on_crash)
        self.sink = sink
        self.is_over = False
        """Whether nobody can write any more."""

    @classmethod
    def open(cls, rank: int, sink: Sink, alike: EqualLines) -> tuple[PipeTail, int]:
        """One with a new pipe, and the end for the rank."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        return cls(reading, rank, sink, alike), writing

    @property
    def rank(self) -> int:
        return self._rank

    def _on_crash(self, text: bytes) -> None:
        self.crash = self.crash or text

    def fileno(self) -> int:
        return self._fd

    def step(self) -> bool:
        """Pass on what there is, up to a chunk; whether there was anything."""
        if self.is_over:
            return False
        now_s = time.monotonic()
        try:
            data = os.read(self._fd, _CHUNK_NBYTES)
        except BlockingIOError:
            return self._put(self._blocks.idle(now_s))
        except OSError:
            data = b""
        if not data:
            self.is_over = True
            return self._put(self._blocks.finish())
        self._put(self._blocks.feed(data, now_s))
        return True

    def finish(self) -> None:
        """Pass on what was kept."""
        self._put(self._blocks.finish())

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._fd)

    def _put(self, lines: bytes) -> bool:
        out = self._alike.put(self._rank, lines, time.monotonic()) if lines else b""
        if out:
            self.sink.put(out)
        return bool(lines)
