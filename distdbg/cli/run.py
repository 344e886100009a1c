"""`distdbg run`: start, watch, restart and clean up the ranks of a job."""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.launch.start import launch


def main(argv: Sequence[str]) -> int:
    """Run a job; its exit code is that of the rank that failed first."""
    return launch(argv)
