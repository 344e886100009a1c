"""destroy_process_group: the end of one group, or of all groups of a World."""

from __future__ import annotations

import sys

from distdbg.check.latent import line_above
from distdbg.errors import DistError, UsageError, WrongTypeError
from distdbg.log.logs import get_logger
from distdbg.record.format import Exit
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import Group, GroupMember
from distdbg.runtime.groups.group_join import part
from distdbg.runtime.latent_errors.search import end_latent
from distdbg.runtime.process.debuggable import close_to_debuggers
from distdbg.runtime.process.debugger_seam import end_stops, hold_on_error
from distdbg.runtime.process.exit_reason import LINGER_S
from distdbg.runtime.process.stack_signal import remove_stack_signal
from distdbg.runtime.process.world import World, current, world_of
from distdbg.runtime.recorder.recording import end_recording
from distdbg.runtime.rendezvous import Membership
from distdbg.runtime.store import PrefixStore

_log = get_logger("runtime")


def destroy_process_group(group: Group = None) -> None:
    """Leave one group; without an argument or with the default group, leave all."""
    world = current()
    if group is not None and not isinstance(group, ProcessGroup):
        if group == GroupMember.NON_GROUP_MEMBER:
            return
        raise WrongTypeError(f"destroy_process_group: not a group: {group!r}")
    if group is None or group is world.default:
        world.require_default()
        # Many a program leaves its groups on the way out of an exception: then that is the last moment.
        hold_on_error(sys.exc_info()[1])
        destroy_world(world)
        return
    if world.groups.get(group.group_name) is not group:
        raise UsageError(
            f"destroy_process_group: group {group.label!r} was destroyed before, "
            "or belongs to another rank"
        )
    del world.groups[group.group_name]
    _leave_group(group)
    part(group.get_group_store(), group.size())


def leave_group(group: ProcessGroup) -> None:
    """As destroy_process_group, for a library that may leave its groups in any order, and twice."""
    world = world_of(group)
    if group is world.default:
        hold_on_error(sys.exc_info()[1])
        destroy_world(world)
    elif world.groups.get(group.group_name) is group:
        del world.groups[group.group_name]
        _leave_group(group)
        part(group.get_group_store(), group.size())


def destroy_world(world: World) -> None:
    """Leave all groups, the newest first, and free what the World holds."""
    try:
        end_latent(world, "left its groups", line_above(2))
    finally:  # a warning may be an error, where the program wants it so
        _destroy(world)


def _destroy(world: World) -> None:
    first: DistError | None = None
    close_to_debuggers(world)
    try:
        while world.groups:
            _, group = world.groups.popitem()
            try:
                _leave_group(group)
            except DistError as error:  # the other groups are left all the same
                first = first or error
    finally:
        watcher, world.watcher = world.watcher, None
        membership, world.membership = world.membership, None
        note, world.exit_note = world.exit_note, None
        if note is not None:
            note.cancel()
        world.default = None
        world.groups.clear()
        world.group_count = 0
        world.local_counts.clear()
        world.reported.clear()
        end_stops(world)
        remove_stack_signal(world)
        end_recording(world, Exit.LEFT)
        if watcher is not None:
            watcher.close()
        if membership is not None:
            leave_membership(membership, is_own=world.owns_store)
    if first is not None:
        raise first


def _leave_group(group: ProcessGroup) -> None:
    group.shutdown()
    _log.info("group '%s' destroyed", group.label, rank=group.ranks[group.rank()])


def leave_membership(membership: Membership, is_own: bool) -> None:
    """Leave the store of all groups; one that init_process_group opened is closed."""
    membership.leave()
    if not is_own:
        return
    # Stores that hold a connection or a server have close(); torch's interface has no such method.
    store = membership.base_store
    if isinstance(store, PrefixStore):  # ours alone, when we have made the connection below it
        store = store.underlying_store
    if membership.serves_others:
        membership.await_others(LINGER_S)
    close = getattr(store, "close", None)
    if close is not None:
        close()
