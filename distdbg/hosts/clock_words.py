"""Writes into a record how far its host's clock is from the root's: two words of its State.

They are the only words of a record that no rank writes. Each is stored whole. While the two change,
`clock_error_ns` is 0, which means: not estimated.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from distdbg.hosts.clock import Offset
from distdbg.record.format import HEADER, HEADER_NBYTES, MAGIC, STATE, STATE_NBYTES, VERSION


def write_offset(path: Path | str, offset: Offset) -> bool:
    """Store it; False when there is no record (any more), or one that this version does not know."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if not _is_record(fd):
            return False
        with (
            mmap.mmap(fd, HEADER_NBYTES + STATE_NBYTES) as mapped,
            memoryview(mapped) as view,
            # A cast view stores 8 bytes with one instruction; a slice of the map would copy bytes.
            view.cast("q") as words,
        ):
            error = (HEADER_NBYTES + STATE["clock_error_ns"].offset) // 8
            words[error] = 0
            words[(HEADER_NBYTES + STATE["clock_offset_ns"].offset) // 8] = offset.offset_ns
            words[error] = max(1, offset.error_ns)
    except (OSError, ValueError):  # ValueError: shorter than a header
        return False
    finally:
        os.close(fd)
    return True


def _is_record(fd: int) -> bool:
    page = os.pread(fd, HEADER_NBYTES, 0)
    numbers = {
        name: int.from_bytes(page[HEADER[name].offset :][:size], "little")
        for name, size in (("magic", 8), ("version", 4), ("header_nbytes", 4))
    }
    return (
        len(page) == HEADER_NBYTES
        and numbers == {"magic": MAGIC, "version": VERSION, "header_nbytes": HEADER_NBYTES}
        and os.fstat(fd).st_size >= HEADER_NBYTES + STATE_NBYTES
    )
