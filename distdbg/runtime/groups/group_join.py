"""All members of a new group register in its store, or every member learns who is missing.

    here/<group rank>   set by each member when it joins: who and where
    here                a counter; who makes it reach the size sets `all_here`
    all_here            what everyone waits for; "differ" when ranks make different groups

    left                a counter: of the members that have destroyed the group since

The keys stay while any member is in the group: it is its own store, and a late rank finds the group
complete. The last that leaves takes them all away, but for what creations compare; else a program that
makes groups in a loop would fill the store.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from distdbg.errors import (
    DistNetworkError,
    DistStoreError,
    RendezvousError,
    UsageError,
    format_ranks,
)
from distdbg.record.durations import duration_text
from distdbg.runtime.groups.membership import DIFFER, Creation, is_compared
from distdbg.runtime.members.member_liveness import NewGroupMembers
from distdbg.runtime.store import Store


def meet(
    store: Store,
    rank: int,
    ranks: Sequence[int],
    timeout_s: float,
    group_name: str,
    lives: NewGroupMembers,
    creation: Creation | None = None,
    find_left: Callable[[Sequence[int]], tuple[int, str] | None] = lambda _: None,
) -> None:
    """Return when all `ranks` (global) have called it; `rank` is this one's place among them.

    With a `creation`, MismatchError when ranks turn out to make different groups, and RankLeft when
    `find_left` knows of a rank that has left all groups in place of coming.
    """
    size = len(ranks)
    look = None
    if creation is not None:
        waiting = creation  # for the type checker: not None in the function below either

        def look() -> None:
            here = [store.check([f"here/{index}"]) for index in range(size)]
            missing = [r for r, is_here in zip(ranks, here, strict=True) if not is_here]
            waiting.look(missing)
            left = find_left(missing)
            # It may have come and gone since it was looked for: then the group was made.
            if left is not None and not store.check(["all_here"]):
                raise waiting.left(*left)

    store.set(f"here/{rank}", f"{socket.gethostname()} pid {os.getpid()}")
    if store.add("here", 1) >= size:
        store.compare_set("all_here", "", "1")
    try:
        lives.wait(store, "all_here", timeout_s, look)
        if creation is not None and store.get("all_here") == DIFFER:
            raise creation.given_up()
    except DistStoreError as error:
        joined = [r for index, r in enumerate(ranks) if store.check([f"here/{index}"])]
        missing = [r for r in ranks if r not in set(joined)]
        if not missing:
            raise  # all are here, so the store itself is the problem
        raise RendezvousError(
            f"{len(joined)} of {size} ranks reached group {group_name!r} within "
            f"{duration_text(timeout_s)}; missing ranks {format_ranks(missing)}",
            joined=joined,
            missing=missing,
            expected=size,
            details=_where(store, ranks, joined),
            hint="look at the output of the missing ranks; raise timeout= if they are only slow",
        ) from error
    finally:
        if creation is not None:
            creation.done()


def part(store: Store, size: int) -> None:
    """Say that this member has left; the last of them removes all keys of the group."""
    # The rank that serves the store may be gone; a store of another library may list no keys.
    with suppress(DistStoreError, DistNetworkError, UsageError):
        if store.add("left", 1) == size:
            for key in store.list_keys():
                # A rank that is no member may compare later; the last to compare removes those.
                if not is_compared(key):
                    store.delete_key(key)


def _where(store: Store, ranks: Sequence[int], joined: Sequence[int]) -> list[str]:
    """One line for each of the first ranks that came: so the hosts without any show."""
    place = {rank: index for index, rank in enumerate(ranks)}
    lines = [
        f"rank {rank} came from {store.get(f'here/{place[rank]}').decode()}" for rank in joined[:8]
    ]
    if len(joined) > 8:
        lines.append(f"and {len(joined) - 8} more")
    return lines
