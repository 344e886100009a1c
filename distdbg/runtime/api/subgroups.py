"""Groups of some of the ranks.

Names: groups that all ranks create together are numbered, and every rank counts also those it is
not in. Groups made by their members alone (use_local_synchronization) are named by their ranks and
how often these ranks did so; so two such groups never meet in one another's store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from distdbg.check.latent import line_above
from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.sites import call_site
from distdbg.record.format import Aside
from distdbg.runtime.api.integers import to_int, to_ints, to_lists
from distdbg.runtime.api.objects import broadcast_object_list
from distdbg.runtime.backends.registry import (
    Backend,
    BackendConfig,
    check_available,
    split_device,
)
from distdbg.runtime.groups.creation import create_group, timeout_seconds
from distdbg.runtime.groups.group import ProcessGroup, set_group_makers
from distdbg.runtime.groups.group_argument import Group, GroupMember, resolve
from distdbg.runtime.groups.membership import Creation
from distdbg.runtime.members.member_liveness import NewGroupMembers
from distdbg.runtime.process.destroy import destroy_process_group
from distdbg.runtime.process.world import World, current, world_of
from distdbg.runtime.recorder.recorded_waits import aside
from distdbg.runtime.store import PrefixStore, Store

SHRINK_DEFAULT = 0
SHRINK_ABORT = 1


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any | None = None,
    sort_ranks: bool = True,
) -> ProcessGroup:
    """Make a group of `ranks` (global; all when None).

    Every rank of the default group calls it in the same order, members or not; with
    use_local_synchronization only the members do. Ranks outside get NON_GROUP_MEMBER.
    """
    world = current()
    default = world.require_default()
    members = _check_ranks("new_group", default, ranks)
    if sort_ranks:
        members = sorted(members)
    name = _next_name(world, members, use_local_synchronization)
    creation = _begin(world, default, members, name, "new_group")
    with _recorded(world, default, "new_group", members):
        if not use_local_synchronization:
            with NewGroupMembers(name, default.ranks, default.members).blamed():
                creation.compare(default.ranks)
        place = default.ranks[default.rank()]
        part = None
        if not use_local_synchronization:
            inside = [default.group_ranks[member] for member in members]
            part = split_device(default, "new_group", [inside], backend, device_id)
        if place not in members:
            # Typed as a group, as in torch: programs hand it on to ops without asking what it is.
            return cast(ProcessGroup, GroupMember.NON_GROUP_MEMBER)
        # Not kept in a variable: nobody else is to refer to it when it is counted who does.
        _create(
            world, default, members, name, timeout, backend, pg_options, group_desc, device_id,
            creation, part,
        )  # fmt: skip
        return _made(world, name)


def new_subgroups(
    group_size: int | None = None,
    group: Group = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | None, list[ProcessGroup]]:
    """Cut a group into groups of `group_size` neighbours; return one's own and all."""
    pg = resolve(group, "new_subgroups")
    if pg is None:
        raise UsageError("new_subgroups: this rank is not in the given group")
    if group_size is None:
        raise UsageError("new_subgroups: give group_size; there are no devices to count")
    group_size = to_int("new_subgroups", "group_size", group_size)
    if group_size < 1 or pg.size() % group_size:
        raise UsageError(
            f"new_subgroups: group_size {group_size} does not divide the group's {pg.size()} ranks"
        )
    cut = [pg.ranks[low : low + group_size] for low in range(0, pg.size(), group_size)]
    return new_subgroups_by_enumeration(cut, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | None, list[ProcessGroup]]:
    """Make one group for each list of ranks; no rank may be in two. Return one's own and all."""
    lists = to_lists(
        "new_subgroups_by_enumeration", "ranks_per_subgroup_list", ranks_per_subgroup_list
    )
    default = current().require_default()
    seen: set[int] = set()
    for given in lists:
        members = _check_ranks("new_subgroups_by_enumeration", default, given)
        twice = seen.intersection(members)
        if twice:
            raise UsageError(f"new_subgroups_by_enumeration: rank {min(twice)} is in two subgroups")
        seen.update(members)
    mine: ProcessGroup | None = None
    groups: list[ProcessGroup] = []
    for ranks in lists:
        made = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        groups.append(made)
        if isinstance(made, ProcessGroup):
            mine = made
    return mine, groups


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
    backend: str | Backend | None = None,
) -> ProcessGroup | None:
    """Split a group by lists of its group ranks; return one's own part, or None.

    Every rank of the parent calls it with the same lists; the lists must not overlap.
    """
    parent = resolve(parent_pg, "split_group")
    if parent is None:
        return None
    lists = to_lists("split_group", "split_ranks", split_ranks)
    seen: set[int] = set()
    mine: list[int] | None = None
    parts = []
    for given in lists:
        part = _check_group_ranks("split_group", parent, given)
        if seen.intersection(part):
            raise UsageError(f"split_group: rank {min(seen.intersection(part))} is in two lists")
        seen.update(part)
        parts.append(sorted(part))
        if parent.rank() in part:
            mine = parts[-1]
    device_part = split_device(parent, "split_group", parts, backend, None)
    if mine is None:
        return None
    members = [parent.ranks[rank] for rank in mine]
    name = _next_name(world_of(parent), members, is_local=True)
    with _recorded(world_of(parent), parent, "split_group", members):
        _create(
            world_of(parent),
            parent,
            members,
            name,
            timeout,
            backend,
            pg_options,
            group_desc or f"{parent.group_desc}:split",
            None,
            _begin(world_of(parent), parent, members, name, "split_group"),
            device_part,
        )
        return _made(world_of(parent), name)


def shrink_group(
    ranks_to_exclude: list[int],
    group: Group = None,
    shrink_flags: int = SHRINK_DEFAULT,
    pg_options: Any | None = None,
) -> ProcessGroup:
    """Make a group of the remaining ranks and leave the old one; only they call it.

    The default group's successor becomes the default group, and all other groups are destroyed.
    With SHRINK_ABORT, ops in flight are broken off first.
    """
    pg = resolve(group, "shrink_group")
    if pg is None:
        raise UsageError("shrink_group: this rank is not in the given group")
    excluded_ranks = to_ints("shrink_group", "ranks_to_exclude", ranks_to_exclude)
    if not excluded_ranks:
        raise UsageError("shrink_group: ranks_to_exclude must be a list with at least one rank")
    if shrink_flags not in (SHRINK_DEFAULT, SHRINK_ABORT):
        raise UsageError(f"shrink_group: shrink_flags must be 0 or 1, got {shrink_flags!r}")
    excluded = set(excluded_ranks)
    if len(excluded) != len(excluded_ranks):
        raise UsageError("shrink_group: a rank is in ranks_to_exclude twice")
    outside = excluded.difference(range(pg.size()))
    if outside:
        raise UsageError(
            f"shrink_group: rank {min(outside)} is not in group {pg.label!r} of {pg.size()} ranks"
        )
    if pg.rank() in excluded:
        raise UsageError(
            f"shrink_group: rank {pg.rank()} is excluded itself; only remaining ranks call it"
        )
    if shrink_flags == SHRINK_ABORT:
        pg.abort()
    world = world_of(pg)
    is_default = pg is world.default
    members = [rank for index, rank in enumerate(pg.ranks) if index not in excluded]
    name = _next_name(world, members, is_local=True)
    made = _create(world, pg, members, name, None, None, pg_options, pg.group_desc, None)
    if is_default:
        for other in list(world.groups.values()):
            if other is not made:
                del world.groups[other.group_name]
                other.shutdown()
        # As after init with `_ranks`: the new default group counts its ranks from 0.
        made.set_ranks(range(made.size()))
        world.default = made
    else:
        destroy_process_group(pg)
    return made


def split_off(
    parent: ProcessGroup,
    ranks: Sequence[int],
    timeout: timedelta | None,
    pg_options: object,
    group_name: str | None,
    group_desc: str | None,
) -> ProcessGroup:
    """Make a group of some group ranks of `parent`; all of them call it, and nobody else."""
    chosen = _check_group_ranks("split_group", parent, ranks)
    if parent.rank() not in chosen:
        raise UsageError(f"split_group: rank {parent.rank()} is not among {chosen[:8]}")
    members = [parent.ranks[rank] for rank in chosen]
    name = group_name or _next_name(world_of(parent), members, is_local=True)
    return _create(
        world_of(parent), parent, members, name, timeout, None, pg_options, group_desc, None
    )


def make_named(
    world: World,
    name: str,
    members: Sequence[int],
    timeout: timedelta | None,
    group_desc: str | None,
) -> ProcessGroup:
    """Make a group for a library that names its groups itself; exactly its members call it."""
    default = world.require_default()
    _next_name(world, members, is_local=True)  # counted, as any group that its members make
    with _recorded(world, default, "new_group", members):
        return _create(
            world, default, members, name, timeout, None, None, group_desc, None,
            _begin(world, default, members, name, "new_group"),
        )  # fmt: skip


def merge_remote(
    local: ProcessGroup,
    store: Store,
    size: int,
    timeout: timedelta | None,
    group_name: str | None,
    group_desc: str | None,
) -> ProcessGroup:
    """Make one group of this one and others that share `store` with it, `size` ranks in all.

    The groups may be of different worlds. Those of one group stay neighbours, in their order; the
    groups are put in the order in which their first ranks came.
    """
    timeout_s = timeout_seconds(timeout, local.timeout_s)
    name = group_name or f"merged-{world_of(local).group_count}"
    shared = PrefixStore(f"{name}/", store)
    shared.set_timeout(timedelta(seconds=timeout_s))
    offset = [0]
    if local.rank() == 0:
        offset[0] = shared.add("ranks", local.size()) - local.size()
    broadcast_object_list(offset, group=local, group_src=0)
    if offset[0] + local.size() > size:
        raise UsageError(
            f"merge_remote_group: size is {size}, but the groups that joined have "
            f"{offset[0] + local.size()} ranks or more"
        )
    world_of(local).group_count += 1
    return create_group(
        world_of(local),
        shared,
        name=name,
        desc=group_desc or "merged",
        ranks=range(size),
        rank=offset[0] + local.rank(),
        backend=BackendConfig(local.backend_config),
        timeout_s=timeout_s,
    )


def _check_group_ranks(what: str, parent: ProcessGroup, ranks: Sequence[int]) -> list[int]:
    chosen = to_ints(what, "ranks", ranks)
    if not chosen or len(set(chosen)) != len(chosen):
        raise UsageError(f"{what}: the ranks must be some, and different; got {chosen[:8]}")
    if min(chosen) < 0 or max(chosen) >= parent.size():
        raise UsageError(
            f"{what}: {chosen[:8]} are not all group ranks of {parent.label!r} "
            f"with {parent.size()} ranks"
        )
    return chosen


def _create(
    world: World,
    parent: ProcessGroup,
    members: Sequence[int],
    name: str,
    timeout: timedelta | None,
    backend: str | None,
    pg_options: object,
    group_desc: str | None,
    device_id: object,
    creation: Creation | None = None,
    device_part: object = None,
) -> ProcessGroup:
    if not isinstance(group_desc, str | None):
        raise WrongTypeError(f"group_desc must be text, not {group_desc!r:.80}")
    chosen = BackendConfig(Backend(backend)) if backend else BackendConfig(parent.backend_config)
    check_available(chosen)
    if world.membership is None:
        raise UsageError("the process groups were destroyed")
    me = parent.ranks[parent.rank()]
    return create_group(
        world,
        world.membership.store,
        name=name,
        desc=group_desc or "undefined",
        ranks=members,
        rank=list(members).index(me),
        backend=chosen,
        timeout_s=timeout_seconds(timeout, parent.timeout_s),
        pg_options=pg_options,
        device_id=device_id if device_id is not None else parent.bound_device_id,
        members=[parent.members[parent.ranks.index(r)] for r in members] if parent.members else (),
        creation=creation,
        device_part=device_part,
    )


def _made(world: World, name: str) -> ProcessGroup:
    """A group that was made for the program, which may lose it."""
    if world.abandoned is not None:
        world.abandoned.made(name, line_above(3))
    return world.groups[name]


def _begin(
    world: World, parent: ProcessGroup, members: Sequence[int], name: str, function: str
) -> Creation:
    """Take part in the making of a group, which may turn out to be another group on other ranks."""
    if world.membership is None:
        raise UsageError("the process groups were destroyed")
    me = parent.ranks[parent.rank()]
    return Creation(
        world.membership.store, name, me, members, function, call_site(), world.reported
    )


def _recorded(world: World, parent: ProcessGroup, function: str, members: Sequence[int]) -> aside:
    """The making of a group as an op of its parent; its seq counts the groups that this rank made.

    Who is no member waits for nobody.
    """
    made = world.group_count - 1 + sum(world.local_counts.values())
    awaited = members if parent.ranks[parent.rank()] in members else ()
    return aside(parent, Aside.NEW_GROUP, made, function, awaited)


def _next_name(world: World, members: Sequence[int], is_local: bool) -> str:
    if not is_local:
        name = str(world.group_count)
        world.group_count += 1
        return name
    # The order of the ranks is part of the group: it decides the group ranks.
    key = tuple(members)
    count = world.local_counts.get(key, 0)
    world.local_counts[key] = count + 1
    digest = hashlib.sha256(",".join(map(str, key)).encode()).hexdigest()[:16]
    return f"local-{digest}-{count}"


def _check_ranks(what: str, default: ProcessGroup, ranks: Sequence[int] | None) -> list[int]:
    if ranks is None:
        return list(default.ranks)
    members = to_ints(what, "ranks", ranks)
    if not members:
        raise UsageError(f"{what}: the list of ranks is empty")
    if len(set(members)) != len(members):
        raise UsageError(f"{what}: the list of ranks names a rank twice: {members[:8]}")
    outside = set(members).difference(default.ranks)
    if outside:
        raise UsageError(
            f"{what}: rank {min(outside)} is not in the default group of {default.size()} ranks"
        )
    return members


set_group_makers(split_off, merge_remote)
