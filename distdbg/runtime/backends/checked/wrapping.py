"""Decides whether ops of another backend are checked, and wraps its engine.

They are not where the backend compares calls itself, or where DISTDBG_UNWRAPPED turns it off. All members
decide alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from distdbg.config import read_setting
from distdbg.runtime.backends.checked.traits import Traits

if TYPE_CHECKING:
    from distdbg.ops.engine import Engine
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store


def put_beside(make: Callable[[], Engine], group: ProcessGroup, store: Store) -> Engine:
    """Make the engine, and return it with the check around it, or as it is."""
    engine = make()
    traits = Traits.of(getattr(engine, "backend", engine))
    if read_setting("DISTDBG_UNWRAPPED") or traits.is_checked or group.size() == 1:
        return engine
    from distdbg.runtime.backends.checked.checked_engine import CheckedEngine
    from distdbg.runtime.backends.checked.control import ControlGroup
    from distdbg.runtime.groups.levels import level_of

    try:
        control = ControlGroup(store, group, traits.reads_strides)
    except BaseException:
        engine.close()
        raise
    made: type[CheckedEngine] = getattr(engine, "checked_by", CheckedEngine)
    return made(engine, control, traits, group.label, level_of(group.world).value)
