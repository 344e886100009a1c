"""monitored_barrier: a barrier whose error names the ranks that did not come.

    every rank sets   monitored/<seq>/<rank>
    rank 0            waits for each of them, then sets monitored/<seq>/verdict
    the others        wait for the verdict

It uses the group's store only, so it works when the data plane does not. With wait_all_ranks,
rank 0 collects all missing ranks; without, it names the first.
"""

from __future__ import annotations

import time
from datetime import timedelta

from distdbg.errors import DistStoreError, OpTimeout, format_ranks
from distdbg.runtime.group import Group, ProcessGroup, resolve
from distdbg.runtime.options import seconds_or_none

#: What the other ranks grant rank 0 on top of its own limit, so that its verdict arrives.
_GRACE_S = 5.0


def monitored_barrier(
    group: Group = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait for all ranks; OpTimeout names those that did not come."""
    pg = resolve(group, "monitored_barrier")
    if pg is not None:
        run_monitored_barrier(pg, seconds_or_none(timeout), wait_all_ranks)


def run_monitored_barrier(
    group: ProcessGroup, timeout_s: float | None, wait_all_ranks: bool
) -> None:
    """Carry it out on one group."""
    store = group.get_group_store()
    limit_s = group.timeout_s if timeout_s is None else timeout_s
    seq = store.add(f"monitored/calls/{group.rank()}", 1)
    prefix = f"monitored/{seq}"
    store.set(f"{prefix}/{group.rank()}", "1")
    if group.rank() != 0:
        try:
            store.wait([f"{prefix}/verdict"], timedelta(seconds=limit_s + _GRACE_S))
        except DistStoreError as error:
            raise _error(group, [0], limit_s) from error
        missing = [int(text) for text in store.get(f"{prefix}/verdict").decode().split(",") if text]
    else:
        missing = _find_missing(group, prefix, limit_s, wait_all_ranks)
        store.set(f"{prefix}/verdict", ",".join(map(str, missing)))
    if missing:
        raise _error(group, missing, limit_s)
    if group.rank() == 0 and seq > 1:
        _forget(group, seq - 1)


def _find_missing(
    group: ProcessGroup, prefix: str, limit_s: float, wait_all_ranks: bool
) -> list[int]:
    store = group.get_group_store()
    deadline = time.monotonic() + limit_s
    missing = []
    for rank in range(1, group.size()):
        left_s = max(deadline - time.monotonic(), 0.001)
        try:
            store.wait([f"{prefix}/{rank}"], timedelta(seconds=left_s))
        except DistStoreError:
            missing.append(rank)
            if not wait_all_ranks:
                break
    return missing


def _forget(group: ProcessGroup, seq: int) -> None:
    """Delete the keys of the call before: whoever came to this one has read its verdict."""
    store = group.get_group_store()
    for name in (*map(str, range(group.size())), "verdict"):
        store.delete_key(f"monitored/{seq}/{name}")


def _error(group: ProcessGroup, missing: list[int], limit_s: float) -> OpTimeout:
    ranks = [group.ranks[rank] for rank in missing]
    arrived = [rank for rank in group.ranks if rank not in set(ranks)]
    return OpTimeout(
        f"monitored_barrier on group {group.label!r} waited {limit_s:.1f} s for rank"
        f"{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}",
        missing=ranks,
        arrived=arrived,
        waited_s=limit_s,
        kind="monitored_barrier",
        group=group.group_name,
        ranks=group.ranks,
        hint="look at what the named ranks do; wait_all_ranks=True names all that are missing",
    )
