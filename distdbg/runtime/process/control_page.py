"""Opens and closes the control page of this host for a rank.

A rank without a page, or with a damaged or foreign one, continues all the same: it cannot be
paused or aborted from outside then.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg import config
from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.control.page import ControlPage
from distdbg.errors import RecordError
from distdbg.log.logs import get_logger
from distdbg.native import Control, NativeError
from distdbg.record.host import host_name

if TYPE_CHECKING:
    from distdbg.runtime.process.world import World

_log = get_logger("control")


def follow_control(world: World, folder: Path, run: str, rank: int) -> None:
    """From now on all waits of this World look at the page of this host in `folder`."""
    unfollow_control(world)
    try:
        _follow(world, folder, run, owns_folder=True)
    except (RecordError, NativeError) as error:
        _log.warning("this rank cannot be paused or aborted from outside: %s", error, rank=rank)


def follow_launcher(world: World) -> None:
    """Follow the page of this start before the ranks have met, where a launcher names run and folder.

    So the wait for a rank that never comes can be ended. Whether the folder is this run's is
    made sure of later: until then a page that another run uses is left alone.
    """
    run = config.read_setting("DISTDBG_RUN")
    folder = config.read_setting("DISTDBG_RUN_DIR")
    if run is None or folder is None or not os.path.isdir(str(folder)):
        return
    with suppress(RecordError, NativeError):  # said when the ranks have met, if it is still so
        _follow(world, Path(str(folder)).absolute(), str(run), owns_folder=False)


def _follow(world: World, folder: Path, run: str, *, owns_folder: bool) -> None:
    page = ControlPage.open(folder, host_name(), run, owns_folder=owns_folder)
    try:
        world.native_control = Control(os.fsencode(page.path), run)
    except NativeError:
        page.close()
        raise
    world.control = JobClock(page)


def unfollow_control(world: World) -> None:
    """The World's waits are its own again; groups that live on keep to the page."""
    clock, world.control = world.control, FREE_CLOCK
    world.native_control = None
    clock.close()
