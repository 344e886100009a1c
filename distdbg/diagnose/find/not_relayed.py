"""A rank that hands messages on, one for each that it receives, and once did not. Pure.

    rank 2 received 40 messages from rank 1 and sent on 39; it sent nothing after the 24th

Two of its recvs follow each other without a send between, where each other one has its send.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import is_past_messages
from distdbg.diagnose.wording import site_of
from distdbg.record.format import Status

#: Fewer messages that were handed on are no habit.
_FEWEST: Final = 3
_BOTH: Final = ("recv", "send")
#: Ranks that are looked at.
_LIMIT: Final = 8


def not_relayed_messages(session: Session, edges: Iterable[Edge]) -> list[WrongPeerFact]:
    """Explain recvs that wait for a rank which is in a collective, or gone: one fact for each such rank."""
    recvs = {
        edge.on[0]: edge.op
        for edge in edges
        if edge.op is not None
        and not edge.is_any
        and session.kind_of(edge.op) == "recv"
        and is_past_messages(session, edge.on[0])
    }
    return [
        miss
        for recv in [*recvs.values()][:_LIMIT]
        if (miss := _not_relayed(session, recv)) is not None
    ]


def _not_relayed(session: Session, recv: OpRef) -> WrongPeerFact | None:
    """None where the rank that is waited for has no such habit: all its messages are one recv, one send."""
    theirs = session.ranks[recv.rank].ops
    rank = theirs.peer[recv.at]
    log = session.ranks.get(rank)
    if log is None or log.lost.get("ops"):
        return None
    ops = log.ops
    turns = [op for op in session.messages(rank) if ops.status[op.at] == Status.OK]
    kinds = [session.kind_of(op) for op in turns]
    recvs, sends = kinds.count("recv"), kinds.count("send")
    if sends < _FEWEST or recvs != sends + 1:
        return None
    # The last one may have ended its loop before it sent anything: nobody knows.
    twice = [i for i, pair in enumerate(pairwise(kinds)) if len(set(pair)) == 1]
    if len(twice) != 1 or kinds[twice[0]] != "recv" or kinds[-1] != "send":
        return None
    if any(
        len({_like(session, op) for op in turns if session.kind_of(op) == k}) > 1 for k in _BOTH
    ):
        return None
    send = turns[-1]
    wants = theirs.group[recv.at], theirs.tag[recv.at], recv.rank
    if wants != (ops.group[send.at], ops.tag[send.at], ops.peer[send.at]):
        return None
    source = ops.source[turns[0].at]
    which = kinds[: twice[0] + 1].count("recv")
    place = site_of(session, send)
    short = place.partition(" (")[0]
    fact = (
        f"rank {rank} received {recvs} messages from rank {source} and sent on {sends}: it sent nothing "
        f"after the {_ordinal(which)}"
    )
    return WrongPeerFact(
        Evidence(
            text=fact, rank=rank, ranks=(rank, recv.rank), op=send, site=place, is_left_out=True
        ),
        f"see why rank {rank} did not send at {short} after the {_ordinal(which)} message from rank {source}",
        (
            f"rank {rank} received {recvs} messages and sent on {sends} at {short}, none after the "
            f"{_ordinal(which)}",
        ),
        (rank,),
        (rank,),
    )


def _like(session: Session, op: OpRef) -> tuple[object, ...]:
    """What is the same of all messages of a relay, in one direction."""
    ops = session.ranks[op.rank].ops
    peer = ops.peer[op.at] if session.kind_of(op) == "send" else ops.source[op.at]
    return session.site_of(op), ops.group[op.at], ops.tag[op.at], peer


def _ordinal(number: int) -> str:
    teen = 10 < number % 100 < 14
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
