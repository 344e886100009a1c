"""How a rank comes to follow the control page of its host, and when it stops to.

A rank without a page, or with one that is damaged or somebody else's, goes on all the same: nobody can
pause it or end it from outside then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.check.logs import get_logger
from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.control.page import ControlPage
from distdbg.errors import RecordError
from distdbg.native import Control, NativeError
from distdbg.record.host import host_name

if TYPE_CHECKING:
    from distdbg.runtime.world import World

_log = get_logger("control")


def follow_control(world: World, folder: Path, run: str, rank: int) -> None:
    """From now on all waits of this World look at the page of this host in `folder`."""
    unfollow_control(world)
    page: ControlPage | None = None
    try:
        page = ControlPage.open(folder, host_name(), run, owns_folder=True)
        world.native_control = Control(os.fsencode(page.path), run)
    except (RecordError, NativeError) as error:
        if page is not None:
            page.close()
        _log.warning("this rank cannot be paused or ended from outside: %s", error, rank=rank)
        return
    world.control = JobClock(page)


def unfollow_control(world: World) -> None:
    """The World's waits are its own again; groups that live on keep to the page."""
    clock, world.control = world.control, FREE_CLOCK
    world.native_control = None
    clock.close()
