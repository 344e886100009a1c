"""Sends and receives that never matched, and which of them were meant for each other. Pure.

    for pair in find_pairs(session):
        pair.text        'rank 0 sent to rank 2 (tag 5) at x.py:8 (main); rank 1 waits for a message from
                         rank 0 (tag 5) at x.py:12 (main)'

A send that nobody takes and a recv that gets nothing are a pair when they differ in one thing:

    TAG      the same two ranks and the same group
    GROUP    the same two ranks and the same tag
    DST      the send went to a rank that does not ask for it, and its receiver is still waiting
    SOURCE   the recv names one rank, and another rank has sent a message

With DST and SOURCE the peer may just be late: such a pair is evidence, and the cause only when that peer
can no longer arrive (`is_likely`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from distdbg.diagnose.finding import Edge
from distdbg.diagnose.messages import MessageMatcher, is_halted
from distdbg.diagnose.ops import IN_FLIGHT, NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import site_of
from distdbg.record.format import Flag

_MAX_PAIRS: Final = 64
#: Messages in flight to or from one rank that are compared with each other.
_MAX_EACH: Final = 32


class PairDifference(StrEnum):
    """What the two halves of a pair differ in."""

    TAG = "tag"
    GROUP = "group"
    DST = "dst"
    SOURCE = "src"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedPair:
    """A send that nobody takes, and a recv that waits."""

    send: OpRef
    recv: OpRef
    differ: PairDifference
    is_likely: bool
    """Whether it is the cause: who would have to come for the send or the recv as it is does not."""
    text: str
    cause: tuple[str, ...]
    """The same for a first line: what has to be there, and what follows if there is room."""


def find_pairs(session: Session) -> list[UnmatchedPair]:
    """All pairs, the surest kind of each recv only, by receiver."""
    sends, recvs = unmatched_halves(session)
    if not sends or not recvs:
        return []
    by_sender, by_target = defaultdict(list), defaultdict(list)
    for send in sends:
        by_sender[send.rank].append(send)
        by_target[_peer(session, send)].append(send)
    found: list[UnmatchedPair] = []
    for recv in recvs:
        near = [*by_sender[_peer(session, recv)][:_MAX_EACH], *by_target[recv.rank][:_MAX_EACH]]
        kinds: dict[PairDifference, list[OpRef]] = defaultdict(list)
        for send in dict.fromkeys(near):
            differ = _differ(session, send, recv)
            if differ is not None:
                kinds[differ].append(send)
        best = next((kind for kind in PairDifference if kinds.get(kind)), None)
        if best is not None:
            found += [_pair(session, send, recv, best) for send in kinds[best]]
        if len(found) >= _MAX_PAIRS:
            break
    return found[:_MAX_PAIRS]


def taken_by_any(session: Session, recv: OpRef) -> OpRef | None:
    """The recv from any rank that took a message of the one that this recv waits for; None."""
    ops, peer = session.ranks[recv.rank].ops, _peer(session, recv)
    if peer == NONE:
        return None
    key = ops.group[recv.at], ops.tag[recv.at]
    for at in range(recv.at - 1, -1, -1):
        if (
            ops.source[at] == peer
            and ops.peer[at] == NONE
            and ops.flags[at] & Flag.MESSAGE
            and (ops.group[at], ops.tag[at]) == key
        ):
            return OpRef(recv.rank, at)
    return None


def say_taken(
    session: Session, recv: OpRef, taker: OpRef, *, short: bool = False
) -> tuple[str, ...]:
    """'rank 0's recv from any rank at x.py:8 (main) took rank 1's message', ', needed by its recv ...'."""
    return (
        f"rank {recv.rank}'s recv from any rank{_at(session, taker, short=short)} took rank "
        f"{_peer(session, recv)}'s message",
        f", needed by its recv{_at(session, recv, short=short)}",
    )


def unmatched_halves(session: Session) -> tuple[list[OpRef], list[OpRef]]:
    """The sends and the recvs in flight that no other rank has met."""
    messages = MessageMatcher(session)
    sends: list[OpRef] = []
    recvs: list[OpRef] = []
    for rank, log in session.ranks.items():
        if is_halted(log):
            continue
        for at in log.ops.in_flight():
            op = OpRef(rank, at)
            kind = session.kind_of(op)
            if not log.ops.flags[at] & Flag.MESSAGE or kind not in ("send", "recv"):
                continue
            if not messages.is_met(op, kind):
                (sends if kind == "send" else recvs).append(op)
    return sends, recvs


def _differ(session: Session, send: OpRef, recv: OpRef) -> PairDifference | None:
    mine, theirs = session.ranks[send.rank].ops, session.ranks[recv.rank].ops
    same_tag = mine.tag[send.at] == theirs.tag[recv.at]
    same_group = mine.group[send.at] == theirs.group[recv.at]
    target, source = _peer(session, send), _peer(session, recv)
    if target == recv.rank and source in (send.rank, NONE):
        if same_group:
            return None if same_tag else PairDifference.TAG
        return PairDifference.GROUP if same_tag else None
    if not (same_tag and same_group):
        return None
    if source == send.rank:
        return PairDifference.DST
    return PairDifference.SOURCE if target == recv.rank and source != NONE else None


def _pair(session: Session, send: OpRef, recv: OpRef, differ: PairDifference) -> UnmatchedPair:
    is_likely = differ in (PairDifference.TAG, PairDifference.GROUP)
    if differ is PairDifference.DST:
        target = _peer(session, send)
        is_likely = is_past_messages(session, target) and not _has_taken(session, target, send)
    return UnmatchedPair(
        send=send,
        recv=recv,
        differ=differ,
        is_likely=is_likely,
        text=_text(session, send, recv, differ),
        cause=_cause(session, send, recv, differ),
    )


def _cause(session: Session, send: OpRef, recv: OpRef, differ: PairDifference) -> tuple[str, ...]:
    tags = [session.tag_of(op) for op in (send, recv)]
    sent, waited = f" (tag {tags[0]})" if tags[0] else "", "its message"
    if differ is PairDifference.TAG:
        sent, waited = f" (tag {tags[0]})", f"tag {tags[1]}"
    elif differ is PairDifference.GROUP:
        labels = [group.label if (group := session.group_of(op)) else "?" for op in (send, recv)]
        sent, waited = f" on group '{labels[0]}'", f"it on group '{labels[1]}'"
    return (
        f"rank {send.rank} sent to rank {_peer(session, send)}{sent}{_at(session, send, short=True)}",
        f"; rank {recv.rank} waits for {waited}",
        _at(session, recv, short=True),
    )


def is_past_messages(session: Session, rank: int) -> bool:
    """Whether it is gone, or in an op of all: it waits for no message."""
    log = session.ranks.get(rank)
    if log is None:
        return False
    if log.is_gone or any(far.closed_ns is not None for far in log.progress.values()):
        return True
    flags = [log.ops.flags[at] for at in log.ops.in_flight()]
    return bool(flags) and not any(each & Flag.MESSAGE for each in flags)


def waits_for_past(session: Session, edges: Iterable[Edge]) -> list[OpRef]:
    """The sends and recvs that wait for one rank which waits for no message."""
    return [
        edge.op
        for edge in edges
        if edge.op is not None
        and not edge.is_any
        and len(edge.on) == 1
        and session.ranks[edge.rank].ops.flags[edge.op.at] & Flag.MESSAGE
        and is_past_messages(session, edge.on[0])
    ]


def _has_taken(session: Session, rank: int, send: OpRef) -> bool:
    """Whether a rank has taken such a message before, or may have: then it was to take this one as well."""
    log = session.ranks.get(rank)
    if log is None or log.lost.get("ops"):
        return True
    ops, theirs = log.ops, session.ranks[send.rank].ops
    return any(
        flags & Flag.MESSAGE
        and ops.source[at] == send.rank
        and ops.tag[at] == theirs.tag[send.at]
        and ops.status[at] != IN_FLIGHT
        for at, flags in enumerate(ops.flags)
    )


def _text(session: Session, send: OpRef, recv: OpRef, differ: PairDifference) -> str:
    mine, theirs = session.ranks[send.rank].ops, session.ranks[recv.rank].ops
    tags = mine.tag[send.at], theirs.tag[recv.at]
    shown = [f" (tag {tag})" if any(tags) else "" for tag in tags]
    groups = ["", ""]
    if differ is PairDifference.GROUP:
        names = [session.group_of(op) for op in (send, recv)]
        groups = [f" on group '{group.label}'" if group else "" for group in names]
    source = _peer(session, recv)
    whom = "any rank" if source == NONE else f"rank {source}"
    return (
        f"rank {send.rank} sent to rank {_peer(session, send)}{shown[0]}{groups[0]}"
        f"{_at(session, send)}; rank {recv.rank} waits for a message from {whom}{shown[1]}"
        f"{groups[1]}{_at(session, recv)}"
    )


def _at(session: Session, op: OpRef, *, short: bool = False) -> str:
    site = site_of(session, op)
    if short:
        site = site.partition(" (")[0]
    return f" at {site}" if site else ""


def _peer(session: Session, op: OpRef) -> int:
    return session.ranks[op.rank].ops.peer[op.at]
