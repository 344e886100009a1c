"""Records who asked for the end of a run by `distdbg stop`: one line in its folder, which the launcher reads.

The launcher itself is asked by SIGTERM, which says nothing of who sent it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from distdbg.record.line_file import append_line, read_lines
from distdbg.record.printable import printable

_NAME: Final = "stop-order"
_MAX_LETTERS: Final = 64


def write_stop_order(folder: Path, by: str) -> None:
    """A folder that is full or gone keeps nobody from ending the run."""
    with suppress(OSError):
        append_line(folder / _NAME, by)


def read_stop_order(folder: Path) -> str:
    """The user who asked first; '' when nobody has."""
    lines: Iterator[bytes] = read_lines(folder, _NAME)
    return printable(next(lines, b"").decode("utf-8", "replace"))[:_MAX_LETTERS]
