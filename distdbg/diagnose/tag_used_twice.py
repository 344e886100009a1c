"""A message that was taken by another receive of its tag than takes the messages of that line else. Pure.

    put:20 -> get:24      tags 0, 1, 2 ... 179      rank 0 -> rank 1
    put:20 -> expect:29   tag 180                   and get:24 waits for tag 180

The order of sends and receives of one tag between two ranks pairs them; their lines show that the pair was
not meant.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from distdbg.diagnose.ops import IN_FLIGHT, NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.record.entries import RecordedFrame
from distdbg.record.format import Flag

#: So often at least the lines have met as they do: fewer are no rule.
_FEWEST = 2

_Lines = tuple[RecordedFrame | None, RecordedFrame | None]


def taken_by_same_tag(session: Session, recv: OpRef) -> tuple[OpRef, OpRef] | None:
    """The receive that took the message which `recv` waits for, and its send; None: it does not show."""
    ops = session.ranks[recv.rank].ops
    peer, group, tag = ops.peer[recv.at], ops.group[recv.at], ops.tag[recv.at]
    if peer == NONE or peer not in session.ranks:
        return None
    if session.ranks[peer].lost.get("ops") or session.ranks[recv.rank].lost.get("ops"):
        return None
    pairs = [*_pairs(session, peer, recv.rank, group)]
    lines = Counter(_lines(session, pair) for pair in pairs)
    mine = session.site_of(recv)
    for send, taker in reversed(pairs):
        if ops.tag[taker.at] != tag:
            continue
        given, taken = _lines(session, (send, taker))
        is_odd = taken != mine and lines[given, taken] == 1
        return (taker, send) if is_odd and lines[given, mine] >= _FEWEST else None
    return None


def _pairs(session: Session, source: int, target: int, group: int) -> Iterator[tuple[OpRef, OpRef]]:
    """The messages between two ranks that have arrived, in the order of their receives."""
    sends: dict[int, list[OpRef]] = defaultdict(list)
    for op in _messages(session, source, target, group, "send"):
        sends[session.ranks[source].ops.tag[op.at]].append(op)
    seen: Counter[int] = Counter()
    ops = session.ranks[target].ops
    for op in _messages(session, target, source, group, "recv"):
        tag = ops.tag[op.at]
        if ops.status[op.at] == IN_FLIGHT or seen[tag] >= len(sends[tag]):
            continue
        yield sends[tag][seen[tag]], op
        seen[tag] += 1


def _messages(session: Session, rank: int, peer: int, group: int, kind: str) -> Iterator[OpRef]:
    ops = session.ranks[rank].ops
    for at, flags in enumerate(ops.flags):
        if flags & Flag.MESSAGE and ops.peer[at] == peer and ops.group[at] == group:
            op = OpRef(rank, at)
            if session.kind_of(op) == kind:
                yield op


def _lines(session: Session, pair: tuple[OpRef, OpRef]) -> _Lines:
    return session.site_of(pair[0]), session.site_of(pair[1])
