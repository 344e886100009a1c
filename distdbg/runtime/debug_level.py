"""The debug level that a program may set and ask for, with torch.distributed's names and numbers.

It chooses nothing yet: the CPU engine compares every op before any byte of an output is written,
which is what DETAIL promises, at every level.
"""

from __future__ import annotations

from enum import Enum

from distdbg import config
from distdbg.errors import UsageError
from distdbg.runtime import world


class DebugLevel(Enum):
    """The levels, with torch.distributed's numbers."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """Return the level of the current world; read from the environment at first use."""
    here = world.current()
    if here.debug_level is None:
        here.debug_level = _level_from_env()
    return here.debug_level


def set_debug_level(arg0: DebugLevel) -> None:
    """Set the level that get_debug_level() returns."""
    if not isinstance(arg0, DebugLevel):
        raise UsageError(f"set_debug_level expects a DebugLevel, not {type(arg0).__name__}")
    world.current().debug_level = arg0


def set_debug_level_from_env() -> None:
    """Set the level to what DISTDBG_DEBUG or TORCH_DISTRIBUTED_DEBUG says."""
    world.current().debug_level = _level_from_env()


def _level_from_env() -> DebugLevel:
    return DebugLevel[config.read_str("DISTDBG_DEBUG").upper()]
