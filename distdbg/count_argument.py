"""Whole numbers as argparse takes them, for all commands: --limit, --ops, --ranks."""

from __future__ import annotations

import argparse


def count(text: str, *, least: int = 0) -> int:
    """0 or more; ArgumentTypeError for anything else."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < least:
        raise argparse.ArgumentTypeError(
            f"must be at least {least}" if least else "must not be negative"
        )
    return value


def positive_count(text: str) -> int:
    """1 or more."""
    return count(text, least=1)
