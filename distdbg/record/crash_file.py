"""What faulthandler printed of a rank that crashed in native code: `rank00003.crash` beside its record.

The rank prints it on stderr; a launcher that shows stderr line by line keeps it here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from distdbg.record.regular_file import open_regular

_MOST_NBYTES: Final = 1 << 18


def crash_name(rank: int) -> str:
    """The file of a rank."""
    return f"rank{rank:05}.crash"


def write_crash(folder: Path, rank: int, text: bytes) -> None:
    """Keep it; a full disk must not keep the launcher from its report."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(OSError), open(os.open(folder / crash_name(rank), flags, 0o600), "wb") as file:
        file.write(text[:_MOST_NBYTES])


def read_crash(folder: Path, rank: int) -> str:
    """'' where there is none, or none that can be read."""
    try:
        with open_regular(folder / crash_name(rank)) as file:
            return file.read(_MOST_NBYTES).decode(errors="replace")
    except OSError:
        return ""
