"""Time of a rank in its own code, outside of ops.

A rank that is late because it waited in another group has spent no more time in its own code than its
peers. The rank that the others really wait for has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Final

from distdbg.diagnose.matching import GroupOps
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag

#: No single delay counts more than so many times the usual one.
MAX_USUAL: Final = 4
_MAX_PEERS: Final = 32
_DEVIATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class OwnTime:
    """The time of a rank between two ops of a group."""

    mine_ns: float
    peers_ns: float
    """The median of those of its peers."""
    chance_ns: float
    """By how much two ranks that do the same differ in it, as a standard deviation."""

    @property
    def more_ns(self) -> float:
        """What is beyond that of the peers, and too much for chance; 0."""
        more = self.mine_ns - self.peers_ns
        return more if more >= _DEVIATIONS * self.chance_ns else 0.0


def own_time(
    session: Session,
    ops: GroupOps,
    ranks: Sequence[int],
    rank: int,
    seqs: tuple[int, int],
    most: float,
) -> OwnTime:
    """How long the rank was in its own code, and its peers.

    No pause counts more than `most` and four times the length in which most of the peers' time is spent.
    """
    peers = [peer for peer in ranks if peer != rank]
    peers = peers[:: -(-len(peers) // _MAX_PEERS)]
    theirs = [_parts_by_line(session, ops, peer, seqs) for peer in peers]
    lengths = [part for lines in theirs for parts in lines.values() for part in parts]
    bound = most + MAX_USUAL * _usual_part(lengths)
    mine = _parts_by_line(session, ops, rank, seqs)
    return OwnTime(
        _total(mine, bound),
        median(_total(lines, bound) for lines in theirs),
        sqrt(2 * median(_variance(lines, bound) for lines in theirs)),
    )


def _total(lines: Mapping[int, Sequence[int]], bound: float) -> float:
    return sum(min(part, bound) for parts in lines.values() for part in parts)


def _variance(lines: Mapping[int, Sequence[int]], bound: float) -> float:
    """Return the variance of the total: what comes before one line of the program is compared with itself."""
    found = 0.0
    for parts in lines.values():
        bounded = [min(part, bound) for part in parts]
        mean = sum(bounded) / len(bounded)
        found += sum((part - mean) ** 2 for part in bounded)
    return found


def _usual_part(parts: Sequence[int]) -> int:
    """Half of all time is in parts up to this length."""
    half = sum(parts) / 2
    reached = 0
    for part in sorted(parts):
        reached += part
        if reached >= half:
            return part
    return 0


def _parts_by_line(
    session: Session, ops: GroupOps, rank: int, seqs: tuple[int, int]
) -> dict[int, list[int]]:
    """The lengths of time between its ops, by the stack of the op after it."""
    begin, end = ops.index(rank, seqs[0]), ops.index(rank, seqs[1])
    found: dict[int, list[int]] = defaultdict(list)
    if begin is not None and end is not None:
        stacks = session.ranks[rank].ops.stack
        for at, part in parts_between(session, rank, begin, end):
            found[stacks[at]].append(part)
    return found


def parts_between(session: Session, rank: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The ops from one to another that the rank came to from its own code, and how long it was there."""
    mine = session.ranks[rank].ops
    reached = mine.issued_ns[begin]
    rows = zip(
        mine.issued_ns[begin : end + 1],
        mine.started_ns[begin : end + 1],
        mine.ended_ns[begin : end + 1],
        mine.flags[begin : end + 1],
        strict=True,
    )
    for at, (issued, started, ended, flags) in enumerate(rows, begin):
        if issued > reached:
            yield at, issued - reached
            reached = issued
        # Of an op that was begun only, what it waited for others: nobody records its Work.wait.
        reached = max(reached, started if flags & Flag.ASYNC else ended)
