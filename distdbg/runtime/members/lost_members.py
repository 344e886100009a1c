"""Finds which member of a group has died or left, for waits outside of the data plane."""

from __future__ import annotations

import time
from collections.abc import Container
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from distdbg.runtime.groups.group_state import GroupState


@runtime_checkable
class _KnowsWhoLeft(Protocol):
    def find_left(self) -> list[int]: ...

    def how_left(self, rank: int) -> str: ...


def find_gone(
    group: GroupState, deadline: float = 0.0, among: Container[int] | None = None
) -> tuple[int, str] | None:
    """Look for a member that has died or left: its group rank, and how.

    `deadline`, of the monotonic clock: look again until then. `among` these group ranks; None: all.
    """
    while True:
        # Before the look at processes: who leaves properly may end a moment later.
        engine = _find_engine(group)
        if engine is not None:
            for rank in engine.find_left():
                if among is None or rank in among:
                    return rank, engine.how_left(rank)
        for rank, life in enumerate(group.members):
            if among is not None and rank not in among:
                continue
            if life.watched is not None and life.watched.is_dead():
                return rank, life.watched.how() if engine is None else engine.how_left(rank)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.01)  # nothing tells of the moment at which a process has ended


def _find_engine(group: GroupState) -> _KnowsWhoLeft | None:
    """Return the engine that knows who left, if there is one: there may be others around it."""
    engine: object = group.engine
    while engine is not None and not isinstance(engine, _KnowsWhoLeft):
        engine = getattr(engine, "inner", None)
    return engine
