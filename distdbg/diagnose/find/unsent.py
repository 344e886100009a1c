"""Messages that are waited for and were never sent, by ranks in a collective: evidence of a deadlock.

    rank 2 never sent rank 0 the message (tag 2); rank 1 sent its own at x.py:5 (send_stats)
    ... rank 3 sends its own at x.py:5 (send_stats)

What makes it likely is another rank that did send one to the same rank, from a line where this one did not.
"""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnose.find.astray import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import IN_FLIGHT, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import is_past_messages
from distdbg.diagnose.wording import site_of
from distdbg.record.format import Flag, Status


def unsent_messages(session: Session, edges: Iterable[Edge]) -> list[WrongPeerFact]:
    """One for each recv that waits for a rank which is in a collective, or gone."""
    found = []
    for edge in edges:
        if edge.op is None or edge.is_any or len(edge.on) != 1:
            continue
        if session.kind_of(edge.op) != "recv" or not is_past_messages(session, edge.on[0]):
            continue
        like = _sent_by_another(session, edge.op, edge.on[0])
        if like is not None:
            found.append(_miss(session, edge.op, edge.on[0], like))
    return found


def _miss(session: Session, recv: OpRef, sender: int, like: OpRef) -> WrongPeerFact:
    tag = session.ranks[recv.rank].ops.tag[recv.at]
    shown = f" (tag {tag})" if tag else ""
    site = site_of(session, like)
    short = site.partition(" (")[0]
    sent = "sends" if _is_in_flight(session, like) else "sent"
    has_past = not session.is_live or session.cut is not None
    is_sure = (
        not has_past or _have_met(session, recv.rank, sender) or _is_hub(session, recv, sender)
    )
    doubt = f"; if it must not, see why rank {recv.rank} has rank {sender} as its peer"
    return WrongPeerFact(
        Evidence(
            text=f"rank {sender} never sent rank {recv.rank} the message{shown}; "
            f"rank {like.rank} {sent} its own at {site}",
            rank=sender,
            ranks=(sender, recv.rank),
            op=recv,
            site=site,
        ),
        f"see why rank {sender} does not send at {short}, as rank {like.rank} does"
        f"{'' if is_sure else doubt}",
        (
            f"rank {recv.rank} waits for a message{shown} that rank {sender} never sent",
            f"; rank {like.rank} {sent} its own at {short}",
        ),
        (sender,) if is_sure else (sender, recv.rank),
        (sender,) if is_sure else (),
    )


def _have_met(session: Session, one: int, other: int) -> bool:
    """Whether they have exchanged a message before: then the one is a peer of the other."""
    return any(
        flags & Flag.MESSAGE and status == Status.OK and other in (peer, source)
        for ops in (session.ranks[one].ops,)
        for flags, status, peer, source in zip(
            ops.flags, ops.status, ops.peer, ops.source, strict=True
        )
    )


def _is_hub(session: Session, recv: OpRef, sender: int) -> bool:
    """Whether most of the others send to it: then all of them have to."""
    others = [rank for rank in session.ranks if rank not in (sender, recv.rank)]
    return 2 * sum(any(True for _ in _sends(session, rank, recv)) for rank in others) > len(others)


def _sent_by_another(session: Session, recv: OpRef, sender: int) -> OpRef | None:
    """A send to the same rank, from a line where `sender` has sent it nothing; None.

    One that is still in flight before one that was received, then that of the lowest rank: a session of a
    running job holds only what is in flight, and it is to name the same rank as the record.
    """
    log = session.ranks[sender]
    if log.lost.get("ops"):
        return None  # it may have sent there before
    mine = {site_of(session, op) for op in _sends(session, sender, recv)}
    found: list[tuple[bool, OpRef]] = []
    for rank in sorted(session.ranks):
        if rank in (sender, recv.rank):
            continue
        takers = _takers(session, recv, rank)
        for at, op in enumerate(_sends(session, rank, recv)):
            site = site_of(session, op)
            if site and site not in mine and _is_of_one_line(session, recv, takers[at : at + 1]):
                found.append((not _is_in_flight(session, op), op))
    return min(found, default=(False, None))[1]


def _takers(session: Session, recv: OpRef, sender: int) -> list[OpRef]:
    """What took the messages of that rank, in order: on one group and tag they do not overtake each other."""
    group, ops = session.group_of(recv), session.ranks[recv.rank].ops
    return [
        op
        for at, flags in enumerate(ops.flags)
        if flags & Flag.MESSAGE
        and ops.status[at] == Status.OK
        and sender in (ops.source[at], ops.peer[at])
        and session.kind_of(op := OpRef(recv.rank, at)) == "recv"
        and session.group_of(op) == group
    ]


def _is_of_one_line(session: Session, recv: OpRef, takers: list[OpRef]) -> bool:
    """Whether a message was meant for the line that waits; of one that nobody has taken that may be."""
    site = site_of(session, recv)
    return all(not site or site_of(session, taker) in ("", site) for taker in takers)


def _is_in_flight(session: Session, op: OpRef) -> bool:
    return session.ranks[op.rank].ops.status[op.at] == IN_FLIGHT


def _sends(session: Session, rank: int, recv: OpRef) -> Iterable[OpRef]:
    """What a rank has sent to the one that receives, on its group."""
    group = session.group_of(recv)
    ops = session.ranks[rank].ops
    for at, flags in enumerate(ops.flags):
        op = OpRef(rank, at)
        if (
            flags & Flag.MESSAGE
            and ops.peer[at] == recv.rank
            and session.kind_of(op) == "send"
            and session.group_of(op) == group
        ):
            yield op
