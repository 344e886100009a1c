"""Finds which side of a message with two tags has changed its tag: by what it used at that line before. Pure.

    halo.py:32  rank 0 received tag 1 from rank 1 43 times, and now waits for tag 2
    halo.py:26  rank 1 sends tag 1, as always: rank 0 has changed

Tags that count rounds are new each time, so a tag that was used once shows nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.unmatched import UnmatchedPair
from distdbg.diagnose.wording import site_of
from distdbg.record.format import Flag

#: So often at least each tag was used at its line: fewer are no rule.
_FEWEST: Final = 2


class ChangedTag(NamedTuple):
    """The side that used the other side's tag until now."""

    rank: int
    fact: str
    """'rank 0 used tag 1 there 43 times before, and tag 2 never'."""
    cause: tuple[str, ...]
    advice: Advice


def changed_tag(session: Session, pair: UnmatchedPair) -> ChangedTag | None:
    """None where both sides have changed, or neither, or there is no past."""
    send, recv = pair.send, pair.recv
    changed = [
        (op, other)
        for op, other in ((send, recv), (recv, send))
        if _has_changed(session, op, other)
    ]
    if len(changed) != 1:
        return None
    op, other = changed[0]
    if _before(session, other)[_tag(session, other)] < _FEWEST:
        return None
    mine, theirs = _tag(session, op), _tag(session, other)
    count = _before(session, op)[theirs]
    place, there = (site_of(session, one).partition(" (")[0] for one in (op, other))
    does, did = ("sends", "waits for") if op == send else ("waits for", "sent")
    if not place:
        return None
    return ChangedTag(
        op.rank,
        f"rank {op.rank} used tag {theirs} there {count} times before, and tag {mine} never",
        (
            f"rank {op.rank} {does} tag {mine} (tag {theirs} before) at {place}",
            f"; rank {other.rank} {did} tag {theirs}",
            f" at {there}" if there else "",
        ),
        Advice(
            f"see what the tag at {place} is made from: on rank {op.rank} it was {theirs} before, and is "
            f"{mine} now",
            Trait.TAG_CHANGED,
            of=place,
        ),
    )


def _has_changed(session: Session, op: OpRef, other: OpRef) -> bool:
    """Whether its tag is new at its line, where it used each tag again and again, also the other side's."""
    before = _before(session, op)
    return (
        _tag(session, op) not in before
        and before[_tag(session, other)] >= _FEWEST
        and min(before.values()) >= _FEWEST
    )


def _before(session: Session, op: OpRef) -> Counter[int]:
    """How often its rank used each tag in earlier messages from that line with that peer."""
    ops = session.ranks[op.rank].ops
    stack, kind = session.stacks[ops.stack[op.at]], session.kind_of(op)
    return Counter(
        ops.tag[at]
        for at in range(op.at)
        if ops.flags[at] & Flag.MESSAGE
        and ops.peer[at] == ops.peer[op.at]
        and ops.group[at] == ops.group[op.at]
        and session.stacks[ops.stack[at]] == stack
        and session.kind_of(OpRef(op.rank, at)) == kind
    )


def _tag(session: Session, op: OpRef) -> int:
    return session.ranks[op.rank].ops.tag[op.at]
