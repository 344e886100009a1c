"""The debug level: how much of each op is compared. It can change at any time.

A change is pushed to every group; ops do not poll it. Ranks need not change at the same op: each
publishes its level with its ops, and the highest one counts for all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from distdbg import config
from distdbg.errors import WrongTypeError
from distdbg.log import logs
from distdbg.log.log_levels import DebugLevel
from distdbg.runtime.backends.tracing import TracingEngine, untraced
from distdbg.runtime.process.rank_context import RankContext
from distdbg.runtime.process.world import World, current

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup

_log = logs.get_logger("check")


def get_debug_level() -> DebugLevel:
    """Return the level of the current world; read from the environment at first use."""
    return level_of(current())


def set_debug_level(arg0: DebugLevel) -> None:
    """Set the level of all groups of this rank, living and to come."""
    if not isinstance(arg0, DebugLevel):
        raise WrongTypeError(f"set_debug_level expects a DebugLevel, not {type(arg0).__name__}")
    _change(current(), arg0, is_chosen=True)


def set_debug_level_from_env() -> None:
    """Set the level to what DISTDBG_DEBUG or TORCH_DISTRIBUTED_DEBUG says now."""
    chosen = _read_level()
    _change(current(), chosen or DebugLevel.DETAIL, is_chosen=chosen is not None)


def level_of(world: RankContext) -> DebugLevel:
    """Return the level of a rank's groups."""
    if world.debug_level is None:
        chosen = _read_level()
        world.debug_level = chosen or DebugLevel.DETAIL
        world.is_level_chosen = chosen is not None
    return world.debug_level


def prepare(world: World) -> None:
    """Read what the environment says of levels and log, before any group is made."""
    level = level_of(world)
    logs.configure(level if world.is_level_chosen else None)


def apply_level(group: ProcessGroup) -> None:
    """Tell a group's engine the level, and write its ops to the log or no longer."""
    engine = untraced(group.engine)
    level = level_of(group.world).value
    calls = getattr(engine, "known_calls", None)
    if calls is not None:
        calls.unfold_begun()  # at the level at which it was begun
    unwaited = group.world.unwaited
    if unwaited is not None:
        unwaited.latent.is_on = (
            level >= DebugLevel.DETAIL.value and group.world.recorder is not None
        )
    engine.set_level(DebugLevel.OFF.value if config.read_setting("DISTDBG_UNWRAPPED") else level)
    if group.world.recorder is not None:
        group.world.recorder.set_level(level)
    group.engine = TracingEngine(engine, group) if logs.is_tracing() else engine


def _change(world: World, level: DebugLevel, *, is_chosen: bool) -> None:
    before = world.debug_level  # None: not asked so far, and what the environment says is past
    world.debug_level = level
    world.is_level_chosen = is_chosen
    logs.configure(level if is_chosen else None)
    for group in list(world.groups.values()):
        apply_level(group)
    if level is not before:
        _log.info(
            "the debug level is %s now; it was %s",
            level.name,
            "not read yet" if before is None else before.name,
        )


def tell_if_off(world: World, rank: int) -> None:
    """Say once per job that nothing is compared."""
    if rank == 0 and level_of(world) is DebugLevel.OFF:
        _log.warning(
            "the check is off (DISTDBG_DEBUG=OFF): ranks that call different ops are not reported, and "
            "may get wrong data"
        )


def _read_level() -> DebugLevel | None:
    text = config.read_setting("DISTDBG_DEBUG")
    if text is None:
        return None
    level = DebugLevel[str(text).upper()]
    # OFF is torch's default, which job scripts set: it is about torch's own check, which costs time.
    is_torchs = not os.environ.get("DISTDBG_DEBUG", "").strip()
    return None if is_torchs and level is DebugLevel.OFF else level
