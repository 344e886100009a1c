"""What a rank printed last, for people: its last words before the end. Pure."""

from __future__ import annotations

from distdbg.diagnose.session import LogLine, Session


def printed_last(session: Session, rank: int, most: int) -> list[LogLine]:
    """The last lines of a rank; those of stderr where there are any: they tell of failures."""
    lines = [line for line in session.lines if line.rank == rank and line.text.strip()]
    errors = [line for line in lines if line.source.startswith("stderr")]
    return (errors or lines)[-most:]
