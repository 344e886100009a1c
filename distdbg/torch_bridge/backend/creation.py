"""Makes the groups of the backend: with the first one this rank's world, the others in it.

With the first group it patches functions of torch.distributed that know torch's own backends only: they take
ours too, and are what they were for all other groups.
"""

from __future__ import annotations

import atexit
import sys
from datetime import timedelta
from functools import wraps
from types import FrameType
from typing import Any

import torch
import torch.distributed as torch_dist
from torch.distributed import distributed_c10d

from distdbg.config import read_setting
from distdbg.errors import UsageError
from distdbg.runtime.api.subgroups import make_named
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.process.init import init_process_group
from distdbg.runtime.process.world import World, current
from distdbg.torch_bridge.backend.group import DistdbgProcessGroup
from distdbg.torch_bridge.call_sites import skip_torch
from distdbg.torch_bridge.store import TorchStore
from distdbg.torch_bridge.training import patch as patch_training

_c10d: Any = distributed_c10d


#: torch's function that makes every group, of which our creator is called.
_HELPER = "_new_process_group_helper"


def make_group(options: Any, pg_options: Any) -> DistdbgProcessGroup:
    """The group that torch asks for; `options` is its DistributedBackendOptions."""
    if pg_options is not None:
        raise UsageError(
            f"the backend distdbg takes no pg_options, got {type(pg_options).__name__}",
            hint="leave pg_options out, or name the backend they belong to",
        )
    is_like_gloo = read_setting("DISTDBG_TORCH_SUMS") == "gloo"  # an error leaves no group behind
    _patch()
    patch_training(torch)
    skip_torch(torch)
    world = current()
    ranks = list(options.global_ranks_in_group)
    group = _make_world(world, options) if not ranks else _make_part(world, options, ranks)
    return DistdbgProcessGroup(group, options.store, is_like_gloo)


def _make_world(world: World, options: Any) -> ProcessGroup:
    if world.default is not None:
        raise UsageError(
            "this process has groups of distdbg.init_process_group already",
            hint="use one of distdbg.init_process_group and "
            'torch.distributed.init_process_group("distdbg")',
        )
    init_process_group(
        "distdbg",
        timeout=options.timeout,
        world_size=options.group_size,
        rank=options.group_rank,
        store=TorchStore(options.store),
        group_name=str(options.group_id),
    )
    atexit.register(_end_watching, world)
    return world.require_default()


def _make_part(world: World, options: Any, ranks: list[int]) -> ProcessGroup:
    if world.default is None:
        raise UsageError(
            f"group {options.group_id!r} is on the backend distdbg, but the default group is not",
            hint='call init_process_group("distdbg"); new_group(backend="gloo") works beside it',
        )
    return make_named(world, str(options.group_id), ranks, options.timeout, _description())


def _description() -> str | None:
    """What new_group(group_desc=...) says, which torch tells its backends only afterwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != _HELPER:
        frame = frame.f_back
    said = None if frame is None else frame.f_locals.get("group_desc")
    return said if isinstance(said, str) else None


def _end_watching(world: World) -> None:
    """No thread may be in Python when the interpreter ends: torch's C++ would be unwound below it."""
    watcher = world.watcher
    if watcher is not None:
        watcher.close()


def _patch() -> None:
    """Patch them; idempotent."""
    if hasattr(_c10d.monitored_barrier, "distdbg_original"):
        return
    _replace("monitored_barrier", _monitored_barrier)
    if hasattr(_c10d, "_set_pg_timeout"):
        _replace("_set_pg_timeout", _set_pg_timeout)
    _replace("destroy_process_group", _destroy_process_group)


def _replace(name: str, ours: Any) -> None:
    theirs = getattr(_c10d, name)

    @wraps(theirs)
    def call(*args: Any, **kwargs: Any) -> Any:
        return ours(theirs, *args, **kwargs)

    call.distdbg_original = theirs  # type: ignore[attr-defined]
    for module in (_c10d, torch_dist):
        if getattr(module, name, None) is theirs:
            setattr(module, name, call)


def _own(group: Any) -> DistdbgProcessGroup | None:
    found = torch_dist.group.WORLD if group is None else group
    return found if isinstance(found, DistdbgProcessGroup) else None


def _monitored_barrier(
    theirs: Any,
    group: Any = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> Any:
    own = _own(group)
    if own is None:
        return theirs(group, timeout, wait_all_ranks)
    return own.monitored_barrier(timeout, wait_all_ranks)


def _set_pg_timeout(theirs: Any, timeout: timedelta, group: Any = None) -> Any:
    own = _own(group)
    return theirs(timeout, group) if own is None else own.set_timeout(timeout)


def _destroy_process_group(theirs: Any, group: Any = None) -> Any:
    """Up to torch 2.6 it tells NCCL alone that a group has ended; to be told twice does no harm."""
    left = [group]
    if group is None or group is torch_dist.group.WORLD:
        names = _c10d._world.pg_names
        left = sorted(names, key=lambda each: str(names[each]), reverse=True)
    result = theirs(group)
    for each in left:
        if isinstance(each, DistdbgProcessGroup):
            each.shutdown()
    return result
