"""RecordedFrame: one line of a stack, apart from the entries of a record, which a rank need not load."""

from __future__ import annotations

from typing import NamedTuple


class RecordedFrame(NamedTuple):
    """One line of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file or '?'}:{self.line} ({self.function})"
