"""The rank and run of a World, also before it has groups and after."""

from __future__ import annotations

import os
from contextlib import suppress

from distdbg.control.page import read_page
from distdbg.errors import DistError
from distdbg.record.folders import attempt_number
from distdbg.record.host import host_name
from distdbg.runtime.process.world import World


def rank_of(world: World) -> int:
    """The number of the rank in the job; what the environment says before it has one."""
    if world.membership is not None:
        return world.membership.rank
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


def run_of(world: World) -> str:
    """The name that `distdbg attach` takes; '' where there is no run folder."""
    folder = world.run_folder
    if folder is None:
        return ""
    with suppress(DistError):
        name = read_page(folder, host_name()).run
        if name:
            return name
    return folder.parent.name if attempt_number(folder) is not None else folder.name
