"""Creates one group of this World: its store, the meeting of its members, its engine.

Used by init_process_group for the group of all ranks and by api/subgroups.py for the others; names
and who calls it are decided there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from distdbg import config
from distdbg.errors import UsageError, format_ranks
from distdbg.log.logs import get_logger
from distdbg.runtime.api.options import seconds_or_none
from distdbg.runtime.backends.recorded import RecordedEngine
from distdbg.runtime.backends.registry import BackendConfig, make_engine
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_join import meet
from distdbg.runtime.groups.levels import apply_level
from distdbg.runtime.groups.membership import Creation
from distdbg.runtime.members.lost_members import find_gone
from distdbg.runtime.members.member_liveness import MemberProcess, NewGroupMembers
from distdbg.runtime.process.debugger_seam import on_other_rules
from distdbg.runtime.process.world import World
from distdbg.runtime.store import PrefixStore, Store

_log = get_logger("runtime")


def timeout_seconds(timeout: timedelta | float | None, default_s: float | None = None) -> float:
    """Return the timeout in seconds: given, inherited, or from the environment."""
    if timeout is None:
        return config.read_float("DISTDBG_TIMEOUT_S") if default_s is None else default_s
    seconds = seconds_or_none(timeout)
    if seconds is None:
        raise UsageError(f"timeout must not be negative, got {timeout}")
    return seconds


def create_group(
    world: World,
    parent_store: Store,
    *,
    name: str,
    desc: str,
    ranks: Sequence[int],
    rank: int,
    backend: BackendConfig,
    timeout_s: float,
    pg_options: object = None,
    device_id: object = None,
    have_met: bool = False,
    members: Sequence[MemberProcess] = (),
    creation: Creation | None = None,
    device_part: object = None,
) -> ProcessGroup:
    """Make the group on this member, register it, and return it.

    `members` by group rank, where known: the death of one then ends the wait for it.
    """
    store = PrefixStore(f"{name}/", parent_store)
    lives = NewGroupMembers(name, ranks, members)
    group = ProcessGroup(store, rank, len(ranks))
    group.world = world
    group.set_ranks(ranks)
    group.group_name = name
    group.group_desc = desc
    group.timeout_s = timeout_s
    group.backend_config = str(backend)
    group.bound_device_id = device_id
    group.device_part = device_part
    group.members = tuple(members)
    with lives.blamed():
        if not have_met:
            meet(store, rank, ranks, timeout_s, name, lives, creation, partial(_find_left, world))
        if world.recorder is not None:
            group.record_number = world.recorder.add_group(
                name, group.label, format_ranks(ranks, len(ranks)), group.name(),
                len(ranks), rank, int(timeout_s * 1e9),
            )  # fmt: skip
        engine = make_engine(backend, group, store, pg_options)
        if world.recorder is not None and not getattr(engine, "records_itself", False):
            engine = RecordedEngine(
                engine, world.recorder, group.record_number, ranks, world.control,
                partial(on_other_rules, group),
            )  # fmt: skip
        group.engine = engine
    world.groups[name] = group
    apply_level(group)
    if world.stops is not None:
        world.stops.on_group(group)
    _log.info(
        "group '%s' created: ranks %s, group rank %d of %d, backend %s, timeout %g s",
        group.label,
        format_ranks(ranks),
        rank,
        len(ranks),
        backend,
        timeout_s,
        rank=group.ranks[rank],
    )
    return group


def _find_left(world: World, ranks: Sequence[int]) -> tuple[int, str] | None:
    """Which of these ranks has left the group of all, so that it makes no other, and how."""
    default = world.default
    if default is None:
        return None
    gone = find_gone(default, among={default.ranks.index(rank) for rank in ranks})
    return None if gone is None else (default.ranks[gone[0]], gone[1])
