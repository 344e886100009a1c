"""Matches collectives of different ranks by (group, seq). Pure.

    matched = match(session)
    matched.of(group).index(rank, seq)        the op, as an index into its rank's columns; None

A group keeps one array of indexes per rank, by seq from the first that its ring still has, so that a
healthy million of ops is matched by looking at each once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from distdbg.diagnose.ops import NONE, OpRef, Ops
from distdbg.diagnose.session import RankLog, Session
from distdbg.record.format import NO_COLLECTIVE

#: In an array of indexes: this seq is not there.
_ABSENT: Final = -1
#: A seq so far from the others of its group is damage, not an op.
_MAX_SPAN: Final = 1 << 24
#: Flags of collectives.
_PLAIN: Final = bytes(flags for flags in range(256) if not flags & NO_COLLECTIVE)


@dataclass(slots=True)
class RankOps:
    """The collectives of one rank on one group."""

    first_seq: int
    indexes: array[int] = field(default_factory=lambda: array("i"))

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.indexes) - 1

    def index(self, seq: int) -> int | None:
        at = seq - self.first_seq
        if not 0 <= at < len(self.indexes):
            return None
        index = self.indexes[at]
        return None if index == _ABSENT else index


@dataclass(slots=True)
class GroupOps:
    """The collectives of one group, by rank; a rank without any is not there."""

    by_rank: dict[int, RankOps] = field(default_factory=dict)

    def index(self, rank: int, seq: int) -> int | None:
        ops = self.by_rank.get(rank)
        return None if ops is None else ops.index(seq)

    def at(self, seq: int) -> dict[int, OpRef]:
        """The op of each rank that is known to have issued this seq."""
        found = {}
        for rank, ops in self.by_rank.items():
            index = ops.index(seq)
            if index is not None:
                found[rank] = OpRef(rank, index)
        return found

    def seqs(self) -> range:
        """From the first seq that any rank still has to the last."""
        if not self.by_rank:
            return range(0)
        first = min(ops.first_seq for ops in self.by_rank.values())
        return range(first, max(ops.last_seq for ops in self.by_rank.values()) + 1)

    def common_seqs(self) -> range:
        """Those that all ranks here have, but for holes."""
        if not self.by_rank:
            return range(0)
        first = max(ops.first_seq for ops in self.by_rank.values())
        return range(first, min(ops.last_seq for ops in self.by_rank.values()) + 1)


@dataclass(slots=True)
class Matched:
    """The collectives of all groups."""

    groups: Mapping[int, GroupOps]

    def of(self, group: int) -> GroupOps:
        return self.groups.get(group, GroupOps())

    def __iter__(self) -> Iterator[tuple[int, GroupOps]]:
        return iter(self.groups.items())


def match(session: Session) -> Matched:
    """Sort the collectives of all ranks by group and seq."""
    groups: dict[int, GroupOps] = {}
    for rank, log in session.ranks.items():
        for group, ops in _sort(log).items():
            groups.setdefault(group, GroupOps()).by_rank[rank] = ops
    return Matched(groups)


def _sort(log: RankLog) -> dict[int, RankOps]:
    found: dict[int, RankOps] = {}
    ops = log.ops
    if _is_one_run(ops):
        return {ops.group[0]: RankOps(ops.seq[0], array("i", range(len(ops))))}
    for index, (group, seq, flags) in enumerate(zip(ops.group, ops.seq, ops.flags, strict=True)):
        if flags & NO_COLLECTIVE or group == NONE:
            continue
        mine = found.get(group)
        if mine is None:
            mine = found[group] = RankOps(seq)
        at = seq - mine.first_seq
        if at == len(mine.indexes):
            mine.indexes.append(index)
        else:
            _place(mine, at, index)
    return found


def _is_one_run(ops: Ops) -> bool:
    """Whether there are only collectives of one group, one after the other: compared as memory."""
    count = len(ops)
    if not count or ops.group[0] == NONE or bytes(ops.flags).translate(None, _PLAIN):
        return False
    first = ops.seq[0]
    if ops.seq[-1] != first + count - 1:  # also one so large that the rest cannot be counted
        return False
    is_counted = ops.seq == array("q", range(first, first + count))
    return is_counted and ops.group == array("i", [ops.group[0]]) * count


def _place(mine: RankOps, at: int, index: int) -> None:
    """Out of order: a hole, an op kept aside while the ring came round, or one of another thread."""
    if at < 0:
        if at > -_MAX_SPAN:
            mine.indexes = array("i", [index] + [_ABSENT] * (-at - 1)) + mine.indexes
            mine.first_seq += at
    elif at < len(mine.indexes):
        mine.indexes[at] = index
    elif at < _MAX_SPAN:
        mine.indexes.extend([_ABSENT] * (at - len(mine.indexes)))
        mine.indexes.append(index)
