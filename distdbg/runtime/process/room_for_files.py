"""Room for the last words of a rank: one that dies of too many open files cannot open one more for them.

Its error file, its record's end and the sources of its traceback take one at a time.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import Final

_MORE: Final = 16
_STDIN: Final = 0


def make_room_for_files() -> None:
    """Of a process that ends: raise its own limit, or give up what nobody will read any more."""
    if _has_room():
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        more = soft + _MORE if hard == resource.RLIM_INFINITY else min(soft + _MORE, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    if not _has_room():
        with suppress(OSError):
            os.close(_STDIN)


def _has_room() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
