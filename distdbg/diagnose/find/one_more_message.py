"""A rank in a message of a loop that the other rank has left: one round more, or fewer. Pure.

    rank 2 received 20 messages from rank 3 at reaction.py:22 and went on to all_gather; rank 3 sends one more

    rank 0 sent its last messages to ranks 1-2 at tiles.py:58 and none to rank 3

    rank 0 sent messages to ranks 1-2 since broadcast #5 and none to rank 3

Others that call the same function show which of the two is wrong: a rank that is in it alone has more rounds,
one that has left it alone fewer. Without others nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.find.other_neighbor import function_of
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import is_past_messages, waits_for_past
from distdbg.diagnose.wording import say_ranks, site_of
from distdbg.record.format import NO_COLLECTIVE, Flag, Status

#: Fewer messages are no loop.
_FEWEST: Final = 2
#: Ops of a rank, from the last back.
_NEAR: Final = 256
#: Waits that are looked at.
_LIMIT: Final = 8


def one_more_message(session: Session, edges: Iterable[Edge]) -> list[WrongPeerFact]:
    """Explain sends and recvs that wait for a rank which is in a collective, after others like them."""
    waits = waits_for_past(session, edges)
    return [miss for op in waits[:_LIMIT] if (miss := _miss(session, op)) is not None]


def _miss(session: Session, op: OpRef) -> WrongPeerFact | None:
    ops = session.ranks[op.rank].ops
    other, kind = ops.peer[op.at], session.kind_of(op)
    log = session.ranks.get(other)
    if log is None or log.lost.get("ops") or session.ranks[op.rank].lost.get("ops"):
        return None
    done = [*_done(session, op, op.rank, other, kind)]
    mine = [one for one in done if session.site_of(one) == session.site_of(op)]
    answer = "recv" if kind == "send" else "send"
    theirs = list(_done(session, op, other, op.rank, answer))
    if len(theirs) == len(done) and (left_out := _left_out(session, op, other, answer)):
        return left_out
    if none_since := _none_since(session, op, other, answer):
        return none_since
    if len(mine) < _FEWEST or len(theirs) != len(mine):
        return None
    at = site_of(session, theirs[-1])
    short = at.partition(" (")[0]
    last = next(log.ops.in_flight(), None)
    went = f" and went on to {session.kind_of(OpRef(other, last))}" if last is not None else ""
    did, wants = ("received", "sends") if kind == "send" else ("sent", "waits for")
    whom = f"{'from' if kind == 'send' else 'to'} rank {op.rank}"
    head = f"rank {other} {did} {len(mine)} messages {whom} at "
    return WrongPeerFact(
        Evidence(
            text=f"{head}{at}{went}; rank {op.rank} {wants} one more",
            rank=other,
            ranks=(other, op.rank),
            op=theirs[-1],
            site=at,
            is_left_out=True,
        ),
        f"see why rank {op.rank} makes one round more there than rank {other}, or rank {other} one fewer",
        (f"{head}{short}{went}", f"; rank {op.rank} {wants} one more"),
        (other, op.rank),
        _who_is_alone(session, op, theirs[-1]),
    )


def _left_out(session: Session, op: OpRef, other: int, kind: str) -> WrongPeerFact | None:
    """A message that the other one exchanged with all its other peers last, and not with this rank."""
    log = session.ranks[other].ops
    peers = {log.peer[one.at] for one in session.messages(other)} - {op.rank}
    last = {
        peer: messages[-1]
        for peer in peers
        if (messages := [*_done(session, op, other, peer, kind)])
    }
    sites = {site_of(session, one) for one in last.values()}
    site = sites.pop() if len(sites) == 1 else ""
    if not site or len(last) < _FEWEST or site == site_of(session, op):
        return None
    if any(site_of(session, one) == site for one in _done(session, op, other, op.rank, kind)):
        return None
    did, whom = ("sent", "to") if kind == "send" else ("received", "from")
    head = f"rank {other} {did} its last messages {whom} {say_ranks(last)} at "
    tail = f" and none {whom} rank {op.rank}"
    short = site.partition(" (")[0]
    return WrongPeerFact(
        Evidence(
            text=f"{head}{site}{tail}",
            rank=other,
            ranks=(other, op.rank),
            op=next(iter(last.values())),
            site=site,
            is_for_others=True,
        ),
        f"see why {short} leaves out rank {op.rank}",
        (f"{head}{short}{tail}",),
        (other, op.rank),
        (other,),
    )


def _none_since(session: Session, op: OpRef, other: int, kind: str) -> WrongPeerFact | None:
    """Since its last collective the other one has exchanged messages with all its other peers alone."""
    log = session.ranks[other].ops
    began = max((at for at in range(len(log)) if _is_collective(session, other, at)), default=-1)
    if began < 0:
        return None
    peers = _peers(session, other, kind) - {op.rank}
    first = {
        peer: messages[0]
        for peer in sorted(peers)
        if (messages := [one for one in _done(session, op, other, peer, kind) if one.at > began])
    }
    before = list(_done(session, op, other, op.rank, kind))
    if len(first) < _FEWEST or len(first) < len(peers) or not before or before[-1].at > began:
        return None
    did, whom = ("sent", "to") if kind == "send" else ("received", "from")
    since = session.name_of(OpRef(other, began)).partition(" on ")[0]
    text = (
        f"rank {other} {did} messages {whom} {say_ranks(first)} since {since} "
        f"and none {whom} rank {op.rank}"
    )
    one = min(first.values(), key=lambda each: each.at)
    return WrongPeerFact(
        Evidence(
            text=text,
            rank=other,
            ranks=(other, op.rank),
            op=one,
            site=site_of(session, one),
            is_for_others=True,
        ),
        f"see why rank {other} leaves out rank {op.rank}, or why that one waits with nothing to come",
        (text,),
        (other, op.rank),
        (other,),
    )


def _peers(session: Session, rank: int, kind: str) -> set[int]:
    """The ranks to which it has sent, or from which it has received."""
    ops = session.ranks[rank].ops
    return {
        ops.source[op.at] if ops.peer[op.at] < 0 else ops.peer[op.at]
        for op in session.messages(rank, kind)
    }


def _is_collective(session: Session, rank: int, at: int) -> bool:
    """Whether it is a collective that has ended well."""
    ops = session.ranks[rank].ops
    return ops.status[at] == Status.OK and not ops.flags[at] & NO_COLLECTIVE


def _who_is_alone(session: Session, more: OpRef, fewer: OpRef) -> tuple[int, ...]:
    """Return the one rank still in the function of `fewer`, or the one that has left it; ()."""
    place = function_of(session, fewer)
    alike = {
        rank: is_past_messages(session, rank)
        for rank, log in session.ranks.items()
        if rank not in (more.rank, fewer.rank)
        and any(
            log.ops.flags[at] & Flag.MESSAGE and function_of(session, OpRef(rank, at)) == place
            for at in range(max(len(log.ops) - _NEAR, 0), len(log.ops))
        )
    }
    if not alike:
        return ()
    if function_of(session, more) == place and all(alike.values()):
        return (more.rank,)
    return () if any(alike.values()) else (fewer.rank,)


def _done(session: Session, like: OpRef, rank: int, peer: int, kind: str) -> Iterator[OpRef]:
    """The messages of a rank to or from another that are over, on the group and with the tag of `like`."""
    ops, wanted = session.ranks[rank].ops, session.ranks[like.rank].ops
    for op in session.messages(rank, kind):
        who = ops.source[op.at] if kind == "recv" and ops.source[op.at] >= 0 else ops.peer[op.at]
        same = (ops.group[op.at], ops.tag[op.at]) == (wanted.group[like.at], wanted.tag[like.at])
        if same and who == peer and ops.status[op.at] == Status.OK:
            yield op
