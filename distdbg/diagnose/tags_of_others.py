"""Finds which side of a message with two tags is likely wrong: by what other ranks use at that line. Pure.

    rank 2 sent tag 1 at x.py:5, rank 3 waits for tag 0; ranks 0-1,3 sent tag 0 there: rank 2 differs

The n-th send of a line is compared with the n-th ones of the other ranks, since tags may count rounds.
"""

from __future__ import annotations

from typing import Final

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import UnmatchedPair
from distdbg.record.format import Flag

#: Fewer other ranks are no majority.
_FEWEST: Final = 2


def odd_tag_of(session: Session, pair: UnmatchedPair) -> int | None:
    """The rank whose tag is another one than that of all others at its line; None where that is not known."""
    tags = {op: session.ranks[op.rank].ops.tag[op.at] for op in (pair.send, pair.recv)}
    odd = [
        op.rank
        for op, other in ((pair.send, pair.recv), (pair.recv, pair.send))
        if _tags_of_others(session, op) == {tags[other]}
    ]
    return odd[0] if len(odd) == 1 else None


def _tags_of_others(session: Session, op: OpRef) -> set[int]:
    """The tags of the other ranks there; empty where fewer have come so far than make a majority."""
    round_ = len(_calls(session, op.rank, op)) - 1
    tags = []
    for rank in session.ranks:
        if rank == op.rank:
            continue
        calls = _calls(session, rank, op)
        if len(calls) > round_:
            tags.append(session.ranks[rank].ops.tag[calls[round_]])
    return set(tags) if len(tags) >= _FEWEST else set()


def _calls(session: Session, rank: int, like: OpRef) -> list[int]:
    """The messages of a rank from that line, in order; of the op's own rank up to it."""
    log, theirs = session.ranks[rank], session.ranks[like.rank].ops
    if log.lost.get("ops"):
        return []
    stack, kind = session.stacks[theirs.stack[like.at]], session.kind_of(like)
    ops = log.ops
    last = like.at if rank == like.rank else len(ops) - 1
    return [
        at
        for at in range(last + 1)
        if ops.flags[at] & Flag.MESSAGE
        and session.stacks[ops.stack[at]] == stack
        and session.kind_of(OpRef(rank, at)) == kind
    ]
