"""Starts and stops the search of a World for latent errors (check/latent.py)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from distdbg.check.latent import CodeLine, LatentErrors
from distdbg.runtime.latent_errors.abandoned import AbandonedGroups
from distdbg.runtime.latent_errors.unwaited import UnwaitedOps

if TYPE_CHECKING:
    from distdbg.runtime.process.world import World


def begin_latent(world: World, rank: int) -> None:
    """Look for them from here on, at level DETAIL."""
    latent = LatentErrors(rank, world.recorder)
    world.unwaited = UnwaitedOps(latent)
    world.abandoned = AbandonedGroups(latent, world.groups)
    for group in world.groups.values():
        group.known_calls = None  # what was known was not looked at for this


def end_latent(
    world: World, how: str, place: CodeLine | None = None, error: BaseException | None = None
) -> None:
    """Tell what is known now that the rank leaves; nothing where an error makes it leave."""
    unwaited = world.unwaited
    if unwaited is not None:
        unwaited.unfold()  # while the world has it
    world.unwaited = world.abandoned = None
    if unwaited is None:
        return
    latent = unwaited.latent
    try:
        if error is None and sys.exc_info()[0] is None:
            unwaited.close(place, how)
    finally:
        unwaited.forget()
        latent.close()
