"""What programs have written, as letters that a terminal obeys in nothing."""

from __future__ import annotations


def printable(line: str) -> str:
    """Escape what a terminal might obey."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
