"""The rights of an ordinary user for a while, also for root: what a mode or a port forbids is forbidden then.

Root passes every check by its capabilities, not by its number. The thread gives them up and takes them back;
it stays the owner of its files, so that nothing else changes for it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_VERSION_3: Final = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextmanager
def ordinary_rights() -> Iterator[None]:
    """Be no more than an ordinary user in this thread; nothing changes for who is one already."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = _Header(_VERSION_3, 0), (_Data * 2)()

    def call(function: str) -> None:
        if getattr(libc, function)(ctypes.byref(header), data):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), function)

    call("capget")
    had = [each.effective for each in data]
    try:
        for each in data:
            each.effective = 0
        call("capset")
        yield
    finally:
        for each, effective in zip(data, had, strict=True):
            each.effective = effective
        call("capset")
