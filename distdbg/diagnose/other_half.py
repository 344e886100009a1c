"""The other half of a message: which send a recv took, and which recv took a send. Pure.

Between two ranks, on one group and with one tag, messages do not overtake each other: the third send is what
the third recv takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session

OTHER_KIND: Final = {"send": "recv", "recv": "send"}


def messages_of(session: Session, rank: int, kind: str, like: OpRef) -> Iterator[OpRef]:
    """The sends, or the recvs, of a rank on the group of another message."""
    group = session.group_of(like)
    return (op for op in session.messages(rank, kind) if session.group_of(op) == group)


def partner_of(session: Session, op: OpRef) -> int:
    """Return the rank that a message is with; -1: any."""
    ops = session.ranks[op.rank].ops
    if session.kind_of(op) == "recv" and ops.source[op.at] >= 0:
        return ops.source[op.at]
    return max(ops.peer[op.at], -1)


def other_half(session: Session, op: OpRef) -> OpRef | None:
    """None where there is none, or it cannot be known."""
    partner, kind = partner_of(session, op), session.kind_of(op)
    if partner not in session.ranks or kind not in OTHER_KIND:
        return None
    tag = session.tag_of(op)
    mine = _between(session, op.rank, kind, op, partner, tag)
    which = sum(one.at < op.at for one in mine)
    theirs = _between(session, partner, OTHER_KIND[kind], op, op.rank, tag)
    return next((one for at, one in enumerate(theirs) if at == which), None)


def _between(
    session: Session, rank: int, kind: str, like: OpRef, partner: int, tag: int
) -> list[OpRef]:
    tags = session.ranks[rank].ops.tag
    return [
        one
        for one in messages_of(session, rank, kind, like)
        if tags[one.at] == tag and partner_of(session, one) == partner
    ]
