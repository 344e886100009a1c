"""How a stop in the debugger ended."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a stop ended."""

    CONTINUED = "continued"
    QUIT = "quit"
    EXPIRED = "expired"
    """Nobody came, or it took longer than allowed."""
    UNREACHABLE = "unreachable"
    """Nobody can come, and the rank has said why."""
