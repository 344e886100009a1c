"""Questions about groups: ranks, sizes, backends. Nothing here communicates."""

from __future__ import annotations

import os

from distdbg.errors import ConfigError, UnknownGroupError, UsageError
from distdbg.runtime.api.integers import to_int
from distdbg.runtime.backends.registry import Backend
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import Group, GroupMember
from distdbg.runtime.process.world import current


def _is_outside(group: Group) -> bool:
    return (
        group is not None
        and not isinstance(group, ProcessGroup)
        and group == GroupMember.NON_GROUP_MEMBER
    )


def _known(group: Group, what: str) -> ProcessGroup:
    """Return the group that is meant; UnknownGroupError when this rank is not in it."""
    if group is None:
        return current().require_default()
    if not isinstance(group, ProcessGroup):
        raise UnknownGroupError(f"{what}: this rank is not in the given group: {group!r}")
    return group


def get_rank(group: Group = None) -> int:
    """Return this rank's number in the group, or -1 when it is not in it."""
    return -1 if _is_outside(group) else _known(group, "get_rank").rank()


def get_world_size(group: Group = None) -> int:
    """Return how many ranks the group has, or -1 when this one is not in it."""
    return -1 if _is_outside(group) else _known(group, "get_world_size").size()


def get_backend(group: Group = None) -> Backend:
    """Return the name of the group's backend."""
    return Backend(_known(group, "get_backend").name())


def get_backend_config(group: Group = None) -> str:
    """Return the backend of each device: 'cpu:gloo,cuda:gloo'."""
    return _known(group, "get_backend_config").backend_config


def get_pg_count() -> int:
    """Return how many groups were made since init_process_group."""
    return current().group_count


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Return this rank's number on its host, from LOCAL_RANK, else `fallback_rank`."""
    text = os.environ.get("LOCAL_RANK")
    if text is not None:
        if not text.isdecimal():
            raise ConfigError(f"the variable LOCAL_RANK={text!r} is not valid; expected a number")
        return int(text)
    if fallback_rank is not None:
        return to_int("get_node_local_rank", "fallback_rank", fallback_rank)
    raise UsageError(
        "get_node_local_rank: LOCAL_RANK is not in the environment",
        hint="pass fallback_rank, or start the ranks with a launcher that sets LOCAL_RANK",
    )


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the number in `group` of a global rank."""
    pg = _known(group, "get_group_rank")
    global_rank = to_int("get_group_rank", "global_rank", global_rank)
    try:
        return pg.group_ranks[global_rank]
    except KeyError:
        raise UsageError(
            f"get_group_rank: rank {global_rank} is not in group {pg.label!r}"
        ) from None


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Return the global rank of number `group_rank` in `group`."""
    pg = _known(group, "get_global_rank")
    group_rank = to_int("get_global_rank", "group_rank", group_rank)
    if not 0 <= group_rank < pg.size():
        raise UsageError(
            f"get_global_rank: {group_rank} is not a rank of group {pg.label!r} "
            f"with {pg.size()} ranks"
        )
    return pg.ranks[group_rank]


def get_process_group_ranks(group: Group) -> list[int]:
    """Return the global ranks of the group, by group rank."""
    return list(_known(group, "get_process_group_ranks").ranks)
