"""`distdbg record`: print what the ranks of a run have recorded."""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.record import __main__ as printer


def main(argv: Sequence[str]) -> int:
    """Print records; exit code 7 when one of them cannot be read."""
    return printer.main(argv, prog="distdbg record")
