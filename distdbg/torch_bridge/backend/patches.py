"""Functions of torch.distributed that know torch's own backends only: they take ours too.

Done when the first group on our backend is made; for all other groups they are what they were.
"""

from __future__ import annotations

from datetime import timedelta
from functools import wraps
from typing import Any

import torch.distributed as torch_dist
from torch.distributed import distributed_c10d

from distdbg.torch_bridge.backend.group import DistdbgProcessGroup

_c10d: Any = distributed_c10d


def patch() -> None:
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
