"""How a stop in the debugger ended, and the error of a rank whose debugger was quit."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from distdbg.errors import DebuggerQuit

#: How long a prompt waits that was given no limit.
LIMIT_S: Final = 3600.0


class StopOutcome(StrEnum):
    CONTINUED = "continued"
    QUIT = "quit"
    EXPIRED = "expired"
    """Nobody came, or it took longer than allowed."""
    UNREACHABLE = "unreachable"
    """Nobody can come, and the rank has said why."""


def quit_error(rank: int, site: str, why: str = "") -> DebuggerQuit:
    """What a rank raises that is to go no further. `why`: what it had stopped for."""
    return DebuggerQuit(
        f"rank {rank} does not continue: its debugger was quit at {site}",
        ranks=[rank],
        site=site,
        details=[f"it had stopped {why}"] if why else [],
        hint="`continue` resumes it",
    )
