"""Where the bytes of a record come from: a file, bytes, or a mapping.

A file is read with pread, never mapped: a file that somebody shortens while it is mapped kills its
reader with SIGBUS. Nothing is locked, and the writer does not notice.
"""

from __future__ import annotations

import os
import stat
from mmap import mmap
from typing import Self

from distdbg.errors import RecordError

Readable = str | os.PathLike[str] | bytes | bytearray | memoryview | mmap


class ByteSource:
    """Bytes by offset; a read beyond the end is short."""

    __slots__ = ("_buffer", "_fd", "is_live", "nbytes", "path")

    def __init__(self, readable: Readable) -> None:
        self._fd = -1
        self._buffer: memoryview | None = None
        #: Whether a second read may give something else.
        self.is_live = not isinstance(readable, bytes)
        if isinstance(readable, (str, os.PathLike)):
            self.path = os.fspath(readable)
            self.nbytes = self._open()
        else:
            self.path = "<bytes>" if isinstance(readable, bytes) else "<buffer>"
            self._buffer = memoryview(readable).cast("B")
            self.nbytes = self._buffer.nbytes

    def _open(self) -> int:
        try:
            # Without O_NONBLOCK the open of a named pipe waits for a writer.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            about = os.fstat(self._fd)
        except (OSError, ValueError) as error:
            self.close()
            raise self._unreadable(error) from error
        if not stat.S_ISREG(about.st_mode):
            self.close()
            raise RecordError(f"{self.path} is not a file", path=self.path)
        return about.st_size

    def read(self, offset: int, nbytes: int) -> bytes:
        # pread reserves what it is asked for, so a hostile length must not get that far.
        nbytes = max(0, min(nbytes, self.nbytes - offset))
        if self._buffer is not None:
            return bytes(self._buffer[offset : offset + nbytes])
        try:
            return os.pread(self._fd, nbytes, offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> RecordError:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return RecordError(f"{self.path} cannot be read: {why}", path=self.path)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
