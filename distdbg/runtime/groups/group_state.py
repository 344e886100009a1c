"""GroupState: a group as whatever carries out, records and watches its ops sees it.

Who its ranks are, what it is called, and where its keys are; no op is started here. ProcessGroup
(group.py) is a GroupState with the ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distdbg.errors import UsageError
from distdbg.ops.engine import Engine

if TYPE_CHECKING:
    from distdbg.runtime.api.blocks import CoalescedBlocks
    from distdbg.runtime.members.member_liveness import MemberProcess
    from distdbg.runtime.process.rank_context import RankContext
    from distdbg.runtime.store import Store


class GroupState:
    """The ranks, names and store of one group, seen from one of its ranks."""

    group_name: str = ""
    """What all ranks know the group by, and no other group of the job is called."""
    group_desc: str = "undefined"
    """What the program calls it: `group_desc=` of the function that made it."""

    def __init__(self, store: Store | None, rank: int, size: int, world: RankContext) -> None:
        self._rank = rank
        self._size = size
        self.store: Store | None = store
        self.world: RankContext = world
        self.ranks: list[int] = list(range(size))
        self.group_ranks: dict[int, int] = {rank: rank for rank in self.ranks}
        self.timeout_s = 1800.0
        self.backend_config = "cpu:custom"
        #: Processes of the members by group rank; empty where they are not known.
        self.members: tuple[MemberProcess, ...] = ()
        #: The number of this group in the record; 0: it is not in one.
        self.record_number = 0
        #: How many monitored_barriers there were, the last that all ranks came to, and the first whose
        #: keys this rank has not deleted.
        self.monitored_seq = 0
        self.monitored_good = 0
        self.monitored_kept = 1
        #: The coalesced blocks it has run, made with the first.
        self.blocks: CoalescedBlocks | None = None

    @property
    def engine(self) -> Engine:
        """What carries out the ops."""
        raise UsageError(f"group {self.label!r} has no engine")

    @property
    def label(self) -> str:
        """What messages call the group: the description, where somebody gave one."""
        if self.group_desc == "default_pg":
            return "world"
        return self.group_name if self.group_desc == "undefined" else self.group_desc

    def set_ranks(self, ranks: Sequence[int]) -> None:
        """Say which global ranks the group ranks 0, 1, ... are."""
        self.ranks = list(ranks)
        self.group_ranks = {rank: index for index, rank in enumerate(self.ranks)}

    def rank(self) -> int:
        """Return this rank's number in the group."""
        return self._rank

    def size(self) -> int:
        """Return how many ranks the group has."""
        return self._size

    def name(self) -> str:
        """Return the name of the backend."""
        return self.backend_config.split(",")[0].partition(":")[2]

    def get_group_store(self) -> Store:
        """Return the store of this group; keys are private to the group."""
        if self.store is None:
            raise UsageError(f"group {self.group_name!r} has no store")
        return self.store
