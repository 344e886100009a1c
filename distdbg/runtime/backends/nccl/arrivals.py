"""Waits for what each member of a group writes into its store, and looks after the members meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from distdbg.errors import DistStoreError, OpTimeout, format_ranks
from distdbg.record.durations import duration_text
from distdbg.runtime.members.member_liveness import NewGroupMembers

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store


def await_members(group: ProcessGroup, store: Store, keys: Sequence[str], what: str) -> None:
    """Wait for one key of each member. PeerLost where one has died, OpTimeout names who did not come."""
    lives = NewGroupMembers(group.label, group.ranks, group.members)
    began = time.monotonic()
    clock = group.world.control
    deadline = clock.now() + group.timeout_s
    for key in keys:
        try:
            lives.wait(store, key, max(deadline - clock.now(), 0.001))
        except DistStoreError as error:
            missing = [
                name for name, key in zip(group.ranks, keys, strict=True) if not store.check([key])
            ]
            if not missing or clock.now() < deadline - 0.1:
                raise  # the store has another reason
            waited_s = time.monotonic() - began
            raise OpTimeout(
                f"{what}: {ranks_text(missing)} did not arrive within {duration_text(waited_s)}",
                missing=missing,
                waited_s=waited_s,
                group=group.label,
            ) from error


def ranks_text(ranks: Sequence[int]) -> str:
    """'rank 1' or 'ranks 0-2'."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(list(ranks))}"
