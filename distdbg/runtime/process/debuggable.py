"""Lets debuggers attach to a running rank, where the job was started with --debuggable.

The debugger is above the runtime, and loaded by name and when it is needed alone.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from distdbg import config

if TYPE_CHECKING:
    from distdbg.runtime.process.world import World

_SESSION: Final = "distdbg.debugger.session"


def open_to_debuggers(world: World) -> None:
    """What init_process_group does last."""
    if config.read_setting("DISTDBG_DEBUGGABLE"):
        module: Any = import_module(_SESSION)
        module.serve_rank(world)


def close_to_debuggers(world: World) -> None:
    """Before the rank leaves its groups; nothing happens where no debugger was ever needed."""
    module: Any = sys.modules.get(_SESSION)
    if module is not None:
        module.leave_rank(world)
