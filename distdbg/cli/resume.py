"""`distdbg resume`: let the deadlines of a paused job run on."""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.cli import pause


def main(argv: Sequence[str]) -> int:
    """Do it on all hosts of the job."""
    return pause.main(argv, "resume")
