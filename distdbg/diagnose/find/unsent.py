"""Messages that are waited for and were never sent, by ranks in a collective: evidence of a deadlock.

    rank 2 never sent rank 0 the message (tag 2); rank 1 sent its own at x.py:5 (send_stats)
    ... rank 3 sends its own at x.py:5 (send_stats)

What makes it likely is another rank that did send one to the same rank, from a line where this one did not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.other_half import messages_of, partner_of
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import is_past_messages
from distdbg.diagnose.wording import say_ranks, site_of
from distdbg.record.format import Status

#: One other rank may be the odd one.
_FEWEST = 2


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
    tag = session.tag_of(recv)
    shown = f" (tag {tag})" if tag else ""
    site = site_of(session, like)
    short = site.partition(" (")[0]
    sent = "sends" if session.is_in_flight(like) else "sent"
    is_sure = _is_peer(session, recv, sender, like)
    elsewhere = _sent_elsewhere(session, sender, like)
    doubt = f"; if it must not, see why rank {recv.rank} has rank {sender} as its peer"
    if elsewhere:  # it has called the line
        waits = f"rank {recv.rank} waits for a message{shown} from rank {sender}, which sent to "
        cause = (
            f"{waits}{say_ranks(elsewhere, 3)} at {short}",
            f"; rank {like.rank} {sent} to it there",
        )
        also = f", where rank {sender} sent to {say_ranks(elsewhere, 3)}"
        to = f"to rank {recv.rank} "
    else:
        cause = (
            f"rank {recv.rank} waits for a message{shown} that rank {sender} never sent",
            f"; rank {like.rank} {sent} its own at {short}",
        )
        also = to = ""
    return WrongPeerFact(
        Evidence(
            text=f"rank {sender} never sent rank {recv.rank} the message{shown}; "
            f"rank {like.rank} {sent} its own at {site}{also}",
            rank=sender,
            ranks=(sender, recv.rank),
            op=recv,
            site=site,
        ),
        f"see why rank {sender} does not send {to}at {short}, as rank {like.rank} does"
        f"{'' if is_sure else doubt}",
        cause,
        (sender,) if is_sure else (sender, recv.rank),
        (sender,) if is_sure else (),
    )


def _is_peer(session: Session, recv: OpRef, sender: int, like: OpRef) -> bool:
    """Whether the sender is one that the rank has to receive from.

    Not where the message of another rank is there that the recv would take if it named that one: of three
    ranks, or while no more is known than what is in flight, the recv may as well name the wrong one.
    """
    is_there = session.is_in_flight(like) and session.tag_of(like) == session.tag_of(recv)
    if session.is_live and session.cut is None:
        return not is_there
    if any(partner_of(session, op) == sender for op in _received(session, recv)):
        return True
    others = [rank for rank in session.ranks if rank not in (sender, recv.rank)]
    count = sum(any(True for _ in _sends(session, rank, recv)) for rank in others)
    return 2 * count > len(others) and (count >= _FEWEST or not is_there)


def _received(session: Session, recv: OpRef) -> Iterable[OpRef]:
    """What the rank has received so far."""
    ops = session.ranks[recv.rank].ops
    return (op for op in session.messages(recv.rank, "recv") if ops.status[op.at] == Status.OK)


def _sent_elsewhere(session: Session, sender: int, like: OpRef) -> list[int]:
    """Whom a rank has sent to from the line of another one's message."""
    site = site_of(session, like)
    sends = messages_of(session, sender, "send", like)
    return sorted({partner_of(session, op) for op in sends if site_of(session, op) == site})


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
                found.append((not session.is_in_flight(op), op))
    return min(found, default=(False, None))[1]


def _takers(session: Session, recv: OpRef, sender: int) -> list[OpRef]:
    """What took the messages of that rank, in order: on one group and tag they do not overtake each other."""
    ops = session.ranks[recv.rank].ops
    return [
        op
        for op in messages_of(session, recv.rank, "recv", recv)
        if ops.status[op.at] == Status.OK and sender in (ops.source[op.at], ops.peer[op.at])
    ]


def _is_of_one_line(session: Session, recv: OpRef, takers: list[OpRef]) -> bool:
    """Whether a message was meant for the line that waits; of one that nobody has taken that may be."""
    site = site_of(session, recv)
    return all(not site or site_of(session, taker) in ("", site) for taker in takers)


def _sends(session: Session, rank: int, recv: OpRef) -> Iterable[OpRef]:
    """What a rank has sent to the one that receives, on its group."""
    peers = session.ranks[rank].ops.peer
    sends = messages_of(session, rank, "send", recv)
    return (op for op in sends if peers[op.at] == recv.rank)


def not_sent_there(session: Session, edges: Sequence[Edge]) -> list[WrongPeerFact]:
    """One for each recv whose sender has never called a line from which the others send such messages.

        rank 3 never sent rank 0 its message (tag 2); ranks 0-2 sent theirs at torus.py:25

    A condition keeps a rank from that line, or it ended its loop before.
    """
    if session.is_live and session.cut is None:  # it may hold what is in flight alone
        return []
    found = []
    for edge in edges:
        if edge.op is None or edge.is_any or len(edge.on) != 1:
            continue
        if session.kind_of(edge.op) == "recv" and (
            miss := _miss_at_line(session, edge.op, edge.on[0])
        ):
            found.append(miss)
    return found


def _miss_at_line(session: Session, recv: OpRef, sender: int) -> WrongPeerFact | None:
    tag = session.tag_of(recv)
    sites: dict[str, dict[int, OpRef]] = defaultdict(dict)
    for rank, log in session.ranks.items():
        if log.lost.get("ops"):
            return None
        for op in session.messages(rank, "send"):
            if log.ops.tag[op.at] == tag and (site := site_of(session, op)):
                sites[site].setdefault(rank, op)
    known = {site: by for site, by in sites.items() if len(by) >= _FEWEST}
    if not known or any(sender in by for by in sites.values()):
        return None
    site, by = max(known.items(), key=lambda item: len(item[1]))
    shown = f" (tag {tag})" if tag else ""
    short = site.partition(" (")[0]
    others = say_ranks(by, 3)
    return WrongPeerFact(
        Evidence(
            text=f"rank {sender} never sent rank {recv.rank} the message{shown}; {others} sent theirs at "
            f"{site}",
            rank=sender,
            ranks=(sender, recv.rank),
            op=next(iter(by.values())),
            site=site,
            is_left_out=True,
        ),
        f"see what keeps rank {sender} from {short}: a condition, or a loop that ended before",
        (
            f"rank {sender} never sent rank {recv.rank} its message{shown}",
            f"; {others} sent theirs at {short}",
        ),
        (sender,),
    )
