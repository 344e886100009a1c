"""How long a rank was in its own code: all time in which it was not in an op.

A rank that comes late because it was kept waiting in another group has spent no more time in its own code
than its peers. Whoever the others really wait for has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from distdbg.diagnose.matching import GroupOps
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag

#: No single delay counts more than so many times the usual one.
MOST_USUAL: Final = 4
_MOST_PEERS: Final = 32


def own_times(
    session: Session,
    ops: GroupOps,
    ranks: Sequence[int],
    rank: int,
    seqs: tuple[int, int],
    most: float,
) -> tuple[float, float]:
    """The time in its own code between two ops of the group, and that of its peers (the median).

    No pause counts more than `most` and four times the length in which most of their time is spent.
    """
    peers = [peer for peer in ranks if peer != rank]
    peers = peers[:: -(-len(peers) // _MOST_PEERS)]
    theirs = [_own_parts(session, ops, peer, seqs) for peer in peers]
    bound = most + MOST_USUAL * _usual_part([part for parts in theirs for part in parts])
    mine = sum(min(part, bound) for part in _own_parts(session, ops, rank, seqs))
    return mine, median(sum(min(part, bound) for part in parts) for parts in theirs)


def _usual_part(parts: Sequence[int]) -> int:
    """Half of all time is in parts up to this length."""
    half = sum(parts) / 2
    reached = 0
    for part in sorted(parts):
        reached += part
        if reached >= half:
            return part
    return 0


def _own_parts(session: Session, ops: GroupOps, rank: int, seqs: tuple[int, int]) -> list[int]:
    """The lengths of time between its ops."""
    begin, end = ops.index(rank, seqs[0]), ops.index(rank, seqs[1])
    if begin is None or end is None:
        return []
    return [part for _, part in parts_between(session, rank, begin, end)]


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
