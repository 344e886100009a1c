"""Messages of a group over UCC, which has collectives alone: our own engine of the host carries them.

It has shared memory or connections of its own, made with the group. The check and the record around UCC are
around these too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from distdbg.runtime.backends.cpu import CpuEngine
from distdbg.runtime.members.absent import doing, where_is
from distdbg.runtime.store import PrefixStore

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store


def make_messages(group: ProcessGroup, store: Store) -> CpuEngine:
    """Make the engine for the messages of a group; all its members do."""
    return CpuEngine(
        PrefixStore("messages/", store),
        group.rank(),
        group.size(),
        group.timeout_s,
        group.label,
        group.ranks,
        group.world.ranks_here,
        group.members,
        where=partial(where_is, group),
        clock=group.world.control,
        control=group.world.native_control,
        doing=partial(doing, group),
    )
