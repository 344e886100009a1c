"""A send and a recv that wait for a sleeping or busy rank, and name other ranks than each other's.

One of the two may name the wrong rank:

    rank 0 sent to rank 2 at job.py:23 (main); rank 2 waits for a message from rank 1 at job.py:25 (main)

Rank 1 may still come, so this is evidence and not the cause. Where it has exchanged no message with rank 2 so
far, the advice is to compare the two lines.
"""

from __future__ import annotations

from typing import Final

from distdbg.diagnose.chains import ChainEnd
from distdbg.diagnose.finding import Evidence, Waits
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import FactKind
from distdbg.diagnose.unmatched import PairDifference, UnmatchedPair, find_pairs
from distdbg.diagnose.wording import known_ns, site_of
from distdbg.record.format import Flag

_LIMIT: Final = 2


def sent_by_another(session: Session, end: ChainEnd, waits: Waits) -> tuple[list[Evidence], str]:
    """The pairs of a send and a recv that name other ranks than each other's, and what to do; ''."""
    waiting = {edge.op for rank in end.waiters for edge in waits.get(rank, ())} - {None}
    waiting |= {edge.op for edge in end.direct}
    pairs = [
        pair
        for pair in (find_pairs(session) if _has_message(session, end) else ())
        if pair.send in waiting and pair.recv in waiting and _late_rank(session, pair) in end.ranks
    ][:_LIMIT]
    strange = next((pair for pair in pairs if not _has_exchanged(session, pair)), None)
    evidence = [_evidence(session, pair, is_strange=pair is strange) for pair in pairs]
    return evidence, "" if strange is None else _advice(session, strange)


def _late_rank(session: Session, pair: UnmatchedPair) -> int | None:
    """Return the rank that both would need to come."""
    if pair.differ is PairDifference.SOURCE:
        return _peer(session, pair.recv)
    return _peer(session, pair.send) if pair.differ is PairDifference.DST else None


def _has_exchanged(session: Session, pair: UnmatchedPair) -> bool:
    """Whether the late rank and the one that waits for it have exchanged a message, or may have."""
    op = pair.recv if pair.differ is PairDifference.SOURCE else pair.send
    mine = session.ranks[op.rank]
    other = _late_rank(session, pair)
    if mine.lost.get("ops"):
        return True
    return any(
        one != op and other in (mine.ops.peer[one.at], mine.ops.source[one.at])
        for one in session.messages(op.rank)
    )


def _advice(session: Session, pair: UnmatchedPair) -> str:
    recv, send = (_short(session, op) for op in (pair.recv, pair.send))
    late = _late_rank(session, pair)
    if pair.differ is PairDifference.SOURCE:
        done = f"rank {late} has sent rank {pair.recv.rank} nothing so far"
    else:
        done = f"rank {late} has received nothing from rank {pair.send.rank} so far"
    return f"{done}: compare src of the recv{recv} with dst of the send{send}, they name different ranks"


def _evidence(session: Session, pair: UnmatchedPair, *, is_strange: bool) -> Evidence:
    ops = session.ranks[pair.send.rank].ops
    return Evidence(
        text=pair.text,
        kind=FactKind.UNMATCHED if is_strange else None,
        rank=pair.send.rank,
        ranks=(pair.send.rank, pair.recv.rank),
        op=pair.send,
        site=site_of(session, pair.send),
        at_ns=known_ns(session.time_ns(pair.send.rank, ops.issued_ns[pair.send.at])),
    )


def _has_message(session: Session, end: ChainEnd) -> bool:
    return any(
        edge.op is not None and session.ranks[edge.rank].ops.flags[edge.op.at] & Flag.MESSAGE
        for edge in end.direct
    )


def _peer(session: Session, op: OpRef) -> int | None:
    peer = session.ranks[op.rank].ops.peer[op.at]
    return None if peer == NONE else peer


def _short(session: Session, op: OpRef) -> str:
    site = site_of(session, op).partition(" (")[0]
    return f" at {site}" if site else ""
