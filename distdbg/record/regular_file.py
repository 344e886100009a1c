"""Opens files that a rank could have replaced: regular files only."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open for reading; OSError for what is no file. Never waits, as a named pipe would have it.

    Of files such as /proc/kmsg, which have something now and then, `read` may return None: see `read_some`.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a file", str(path))
    return open(fd, "rb")


def read_some(file: BinaryIO, most: int = -1) -> bytes:
    """What there is of a file that `open_regular` has opened, up to so many bytes; b'' for nothing yet."""
    return file.read(most) or b""
