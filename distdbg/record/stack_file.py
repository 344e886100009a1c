"""Where a rank writes its stacks when it is asked to, and by which signal it is asked.

rank00012.stacks     in the run folder, beside its record; as long as it is there, the signal makes
                     the process append the stacks of all its threads to it
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from distdbg.record.regular_file import open_regular, read_some

_MAX_NBYTES: Final = 1 << 18


#: Neither glibc, nor the common profilers, runtimes and launchers use it.
STACK_SIGNAL: Final = signal.SIGRTMIN + 7


def stacks_name(rank: int) -> str:
    """The file of a rank in the run folder."""
    return f"rank{rank:05}.stacks"


def crash_name(rank: int) -> str:
    """The file of a rank."""
    return f"rank{rank:05}.crash"


def write_crash(folder: Path, rank: int, text: bytes) -> None:
    """Keep it; a full disk must not keep the launcher from its report."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(OSError), open(os.open(folder / crash_name(rank), flags, 0o600), "wb") as file:
        file.write(text[:_MAX_NBYTES])


def read_crash(folder: Path, rank: int) -> str:
    """'' where there is none, or none that can be read."""
    try:
        with open_regular(folder / crash_name(rank)) as file:
            return read_some(file, _MAX_NBYTES).decode(errors="replace")
    except OSError:
        return ""
