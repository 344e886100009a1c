"""The lines that a rank prints about its debugger, into its own output."""

from __future__ import annotations

import os
from contextlib import suppress

from distdbg.debugger.desk import PromptInput
from distdbg.debugger.given_input import FROM_STDIN


def announce(desk: PromptInput, why: str, site: str) -> None:
    """How to come to a rank that has stopped; nothing where a person is there."""
    if not desk.has_own_terminal and desk.client in ("", FROM_STDIN):
        how = f"distdbg attach --rank {desk.rank} {desk.run}"
        print_line(desk.rank, f"stopped at {site}, {why}; attach: {how}")


def say_passed(rank: int, why: str, site: str) -> None:
    """Why a rank has not stopped at a line that wants it to."""
    print_line(
        rank,
        f"{why} at {site} continues: this rank has neither a terminal nor input; "
        "dist.breakpoint(timeout_s=...) waits for distdbg attach",
    )


def print_line(rank: int, text: str) -> None:
    # Not through sys.stderr: the rank may have been interrupted in the middle of a print.
    with suppress(OSError):
        os.write(2, f"distdbg: rank {rank}: {text}\n".encode(errors="backslashreplace"))
