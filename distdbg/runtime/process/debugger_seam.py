"""The seam to the debugger, which is above the runtime and loaded only where there is a reason to stop.

    DISTDBG_BREAK                 rules from the first op on
    the control page              rules that change while the job runs: an op notices
    DISTDBG_DEBUG_ON_ERROR        an uncaught exception
    breakpoint()                  Python's own, in a rank without a terminal

So a rank that never stops pays for none of it. What is loaded is named by text: an import would make the
runtime depend on what depends on it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distdbg import config
from distdbg.errors import ConfigError, UsageError
from distdbg.runtime.process.world import Stops, World, current, world_of

if TYPE_CHECKING:
    from distdbg.ops.engine import Engine
    from distdbg.runtime.groups.group import ProcessGroup

#: What an engine is used through, for an op that has found other breakpoints armed.
Through = Callable[["Engine"], "Engine"]


def check_stops() -> None:
    """Raise what is wrong with DISTDBG_BREAK, before others wait for this rank."""
    text = config.read_setting("DISTDBG_BREAK")
    if text is None:
        return
    from distdbg.control.breakpoints import parse_rules

    try:
        parse_rules(str(text))
    except UsageError as error:
        raise ConfigError(f"the variable DISTDBG_BREAK: {error.what}", hint=error.hint) from None


def start_stops(world: World, rank: int) -> None:
    """What a rank does about stops before it has groups."""
    if config.read_setting("DISTDBG_BREAK") is not None:
        _stops_of(world, rank)
    if config.read_setting("DISTDBG_DEBUG_ON_ERROR"):
        _load("on_error").hold_uncaught()
    if sys.breakpointhook is sys.__breakpointhook__ and "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = _breakpoint


def end_stops(world: World) -> None:
    """The rank leaves its groups."""
    stops, world.stops = world.stops, None
    if stops is not None:
        stops.close()


def hold_on_error(error: BaseException | None) -> None:
    """Hold this rank at an exception before it tells anybody that it leaves, where that is asked for."""
    if isinstance(error, Exception) and config.read_setting("DISTDBG_DEBUG_ON_ERROR"):
        _load("on_error").hold(error)


def on_other_rules(group: ProcessGroup, engine: Engine) -> Engine:
    """What an op calls that has found other breakpoints armed: what to carry it out by instead."""
    return _stops_of(world_of(group), group.ranks[group.rank()]).through(group, engine)


def _stops_of(world: World, rank: int) -> Stops:
    if world.stops is None:
        world.stops = _load("breaker").Breaker(world, rank)
    return world.stops


def _breakpoint(*args: object, **kwargs: object) -> object:
    """What `breakpoint()` calls in a rank."""
    if current().default is None or "PYTHONBREAKPOINT" in os.environ or _has_terminal():
        return sys.__breakpointhook__(*args, **kwargs)
    return _load("breakpoint").open_here(sys._getframe(1))


def _has_terminal() -> bool:
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # None, or closed
        return False


def _load(name: str) -> Any:  # a module that the type checker cannot follow
    return import_module(f"distdbg.debugger.{name}")
