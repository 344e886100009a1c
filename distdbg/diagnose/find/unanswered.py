"""A rank that answers each message, and waits for the next one without an answer to the last. Pure.

    rank 3 received at farm.py:41 and sent no answer at farm.py:50, as after its 12 messages before

Both sides are in a recv. What makes it sure: each message of that line was answered so far, by this rank
or by others that do the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import IN_FLIGHT, OpRef
from distdbg.diagnose.other_half import partner_of
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks, site_of, verb
from distdbg.record.format import Flag, Status

#: Fewer answers are no habit.
_FEWEST: Final = 2


class _Answers(NamedTuple):
    """What followed the messages that ranks received at one line."""

    sends: list[OpRef]
    own: int
    """How many of them are of the rank that is waited for."""


def unanswered_messages(session: Session, edges: Iterable[Edge]) -> list[WrongPeerFact]:
    """One for each rank whose answer another one waits for, while it waits for a message itself."""
    edges = [edge for edge in edges if edge.op is not None]
    waits = {edge.rank: edge.op for edge in edges if edge.op and session.kind_of(edge.op) == "recv"}
    found = []
    for edge in edges:
        rank = edge.on[0] if len(edge.on) == 1 else -1
        own = waits.get(rank)
        if edge.rank in waits and own is not None:
            answers = _answers(session, edge.rank, own)
            if answers is not None and len(answers.sends) >= _FEWEST:
                found.append(_miss(session, edge.rank, own, answers))
    return found


def _answers(session: Session, asker: int, recv: OpRef) -> _Answers | None:
    """None where the last message was answered, or others were not."""
    place = session.site_of(recv)
    mine = _messages(session, recv.rank)
    if place is None or mine is None or len(mine) < 2 or mine[-1] != recv:
        return None
    if session.kind_of(mine[-2]) != "recv" or session.site_of(mine[-2]) != place:
        return None
    sends: list[OpRef] = []
    own = 0
    for rank in sorted(session.ranks):
        turns = mine[:-1] if rank == recv.rank else _messages(session, rank)
        if turns is None:
            return None
        for at, op in enumerate(turns[:-1]):
            if session.kind_of(op) == "recv" and session.site_of(op) == place:
                sends.append(turns[at + 1])
                own += rank == recv.rank
    lines = {session.site_of(op) for op in sends}
    is_habit = len(lines) == 1 and all(
        session.kind_of(op) == "send" and session.ranks[op.rank].ops.peer[op.at] == asker
        for op in sends
    )
    return _Answers(sends, own) if is_habit else None


def _messages(session: Session, rank: int) -> list[OpRef] | None:
    """List messages that went well and the one in flight, in order; None where some are not known."""
    log = session.ranks[rank]
    if log.lost.get("ops"):
        return None
    done = (Status.OK, IN_FLIGHT)
    return [op for op in session.messages(rank) if log.ops.status[op.at] in done]


def _miss(session: Session, asker: int, recv: OpRef, answers: _Answers) -> WrongPeerFact:
    rank, like = recv.rank, answers.sends[-1]
    there, site = site_of(session, recv), site_of(session, like)
    short = site.partition(" (")[0]
    line = there.partition(" (")[0]
    before = f"as after its {answers.own} messages before" if answers.own > 1 else "as others do"
    return WrongPeerFact(
        Evidence(
            text=f"rank {rank} received at {line} and sent no answer at {short}, {before}",
            rank=rank,
            ranks=(rank, asker),
            op=like,
            site=site,
            is_left_out=True,
        ),
        f"see why rank {rank} did not send at {short} after its last message at {line}",
        (
            f"rank {rank} did not answer its last message at {short}",
            f"; rank {asker} waits for that, and rank {rank} for the next one",
        ),
        (rank,),
        (rank,),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ManagerExchange:
    """What one worker and the manager have sent each other; each was received."""

    worker: int
    got: int
    sent: int

    @property
    def ahead(self) -> int:
        """How many more it has sent."""
        return self.sent - self.got


def one_answer_more(session: Session, edges: Sequence[Edge]) -> list[WrongPeerFact]:
    """Explain a deadlock in which all ranks but one receive from that one, which is in a recv as well.

    rank 0 has received all 6 messages of ranks 1-3 and sent 6; it waits for one more
    rank 2 received 3 messages from rank 0 and sent 2; ranks 1,3 sent one for each that they received
    """
    manager = _manager(session, edges)
    if manager is None or manager.op is None:
        return []
    workers = [edge for edge in edges if edge is not manager]
    names = {manager.rank, *(edge.rank for edge in workers)}
    if any(session.ranks[rank].lost.get("ops") for rank in names):
        return []
    given = _received(session, manager.op, manager.rank)
    exchanges = [
        _ManagerExchange(
            worker=edge.rank,
            got=_received(session, edge.op, edge.rank)[manager.rank],
            sent=given[edge.rank],
        )
        for edge in workers
        if edge.op is not None
    ]
    reported = _judge(manager.rank, exchanges, is_any=manager.is_any)
    if reported is None:
        return []
    text, cause, odd, advice = reported
    first = odd[0] if odd else manager.rank
    edge = next(edge for edge in edges if edge.rank == first)
    site = edge.site.partition(" (")[0]
    pieces = tuple(piece.replace("{at}", f" at {site}" if site else "") for piece in cause)
    evidence = Evidence(
        text=text, rank=first, ranks=tuple(sorted(names)), op=edge.op, site=edge.site
    )
    return [WrongPeerFact(evidence, advice, pieces, odd or (first,), odd)]


def _judge(
    manager: int, exchanges: Sequence[_ManagerExchange], *, is_any: bool
) -> tuple[str, tuple[str, ...], tuple[int, ...], str] | None:
    """The evidence, the first line with '{at}' for the place, who is odd, and the hint; None: not known."""
    if not any(one.got or one.sent for one in exchanges):
        return None
    usual, count = Counter(one.ahead for one in exchanges).most_common(1)[0]
    unlike = [one for one in exchanges if one.ahead != usual]
    if not unlike:
        return _all_alike(manager, exchanges, usual) if is_any else None
    if len(unlike) > 1 or count < 2:
        return None
    one = unlike[0]
    others = say_ranks(each.worker for each in exchanges if each is not one)
    facts = f"rank {one.worker} received {_messages_text(one.got)} from rank {manager} and sent it {one.sent}"
    text = f"{facts}; {others} sent {_as_many(usual)} they received"
    if one.ahead < usual:
        cause = (
            f"rank {one.worker} waits{{at}} and has not answered rank {manager}",
            f": it received {_messages_text(one.got)} and sent {one.sent}",
        )
        advice = f"see which message of rank {manager} gets no answer from rank {one.worker}"
        return text, cause, (one.worker,), advice
    cause = (
        f"rank {manager} waits{{at}} and has not answered rank {one.worker}",
        f", which sent {one.sent} and received {one.got}",
    )
    advice = f"see which message of rank {one.worker} gets no answer from rank {manager}"
    return text, cause, (manager,), advice


def _all_alike(
    manager: int, exchanges: Sequence[_ManagerExchange], ahead: int
) -> tuple[str, tuple[str, ...], tuple[int, ...], str] | None:
    who = [one.worker for one in exchanges]
    got, sent = sum(one.got for one in exchanges), sum(one.sent for one in exchanges)
    whom = say_ranks(who)
    text = (
        f"rank {manager} sent {_messages_text(got)} to {whom} and received {sent} from "
        f"{verb(who, 'it', 'them')}; no message is left over"
    )
    if ahead == 0:
        cause = (
            f"rank {manager} waits{{at}} for one message more",
            f"; {whom} received {got} and sent {sent}",
        )
        advice = (
            f"see why rank {manager} waits for a message more than it has sent, or does not send the "
            f"next one to {whom}"
        )
        return text, cause, (), advice
    if ahead > 0:
        cause = (
            f"rank {manager} waits{{at}} for one message more before it answers {whom}",
            f", which sent {sent} and received {got}",
        )
        return text, cause, (), f"see whether rank {manager} has to answer {whom} first"
    return None


def _manager(session: Session, edges: Sequence[Edge]) -> Edge | None:
    """The one that all others wait for; None: they wait in another way."""
    if len(edges) < 2 or not all(_is_recv(session, edge) for edge in edges):
        return None
    for manager in edges:
        others = [edge for edge in edges if edge is not manager]
        if all(not edge.is_any and edge.on == (manager.rank,) for edge in others):
            is_between = set(manager.on) <= {edge.rank for edge in others}
            if is_between and len({_group(session, edge) for edge in edges}) == 1:
                return manager
    return None


def _is_recv(session: Session, edge: Edge) -> bool:
    if edge.op is None or not session.ranks[edge.rank].ops.flags[edge.op.at] & Flag.MESSAGE:
        return False
    return session.kind_of(edge.op) == "recv"


def _group(session: Session, edge: Edge) -> int:
    assert edge.op is not None
    return session.ranks[edge.rank].ops.group[edge.op.at]


def _received(session: Session, like: OpRef | None, rank: int) -> Counter[int]:
    """How many messages a rank has received from each other one, on the group of `like`."""
    assert like is not None
    ops = session.ranks[rank].ops
    return Counter(
        partner_of(session, op)
        for op in session.messages(rank, "recv")
        if ops.status[op.at] == Status.OK and ops.group[op.at] == ops.group[like.at]
    )


def _messages_text(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _as_many(ahead: int) -> str:
    if ahead == 0:
        return "one for each that"
    more = "more" if ahead > 0 else "fewer"
    return f"{abs(ahead)} {more} than"
