"""A manager and its workers that all wait: who owes the next message, by how many each got and sent. Pure.

    rank 0 has received all 6 messages of ranks 1-3 and sent 6; it waits for one more
    rank 2 received 3 messages from rank 0 and sent 2; ranks 1,3 sent one for each that they received

The manager waits for any of the others (or one), each of these for the manager, and no message is left over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from distdbg.diagnose.find.astray import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks, verb
from distdbg.record.format import Flag, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerExchange:
    """What one worker and the manager have sent each other; each was received."""

    worker: int
    got: int
    sent: int

    @property
    def ahead(self) -> int:
        """How many more it has sent."""
        return self.sent - self.got


def one_answer_more(session: Session, edges: Sequence[Edge]) -> list[WrongPeerFact]:
    """Of a deadlock in which each rank but one waits in a recv from that one, which is in a recv as well."""
    manager = _manager(session, edges)
    if manager is None or manager.op is None:
        return []
    workers = [edge for edge in edges if edge is not manager]
    names = {manager.rank, *(edge.rank for edge in workers)}
    if any(session.ranks[rank].lost.get("ops") for rank in names):
        return []
    given = _received(session, manager.op, manager.rank)
    exchanges = [
        ManagerExchange(
            worker=edge.rank,
            got=_received(session, edge.op, edge.rank)[manager.rank],
            sent=given[edge.rank],
        )
        for edge in workers
        if edge.op is not None
    ]
    told = judge(manager.rank, exchanges, is_any=manager.is_any)
    if told is None:
        return []
    text, cause, odd, advice = told
    first = odd[0] if odd else manager.rank
    edge = next(edge for edge in edges if edge.rank == first)
    site = edge.site.partition(" (")[0]
    pieces = tuple(piece.replace("{at}", f" at {site}" if site else "") for piece in cause)
    evidence = Evidence(
        text=text, rank=first, ranks=tuple(sorted(names)), op=edge.op, site=edge.site
    )
    return [WrongPeerFact(evidence, advice, pieces, odd or (first,), odd)]


def judge(
    manager: int, exchanges: Sequence[ManagerExchange], *, is_any: bool
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
    facts = f"rank {one.worker} received {_messages(one.got)} from rank {manager} and sent it {one.sent}"
    text = f"{facts}; {others} sent {_as_many(usual)} they received"
    if one.ahead < usual:
        cause = (
            f"rank {one.worker} waits{{at}} and has not answered rank {manager}",
            f": it received {_messages(one.got)} and sent {one.sent}",
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
    manager: int, exchanges: Sequence[ManagerExchange], ahead: int
) -> tuple[str, tuple[str, ...], tuple[int, ...], str] | None:
    who = [one.worker for one in exchanges]
    got, sent = sum(one.got for one in exchanges), sum(one.sent for one in exchanges)
    whom = say_ranks(who)
    text = (
        f"rank {manager} sent {_messages(got)} to {whom} and received {sent} from "
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
    counts: Counter[int] = Counter()
    for at in range(len(ops)):
        if not ops.flags[at] & Flag.MESSAGE or ops.status[at] != Status.OK:
            continue
        if ops.group[at] != ops.group[like.at] or session.kind_of(OpRef(rank, at)) != "recv":
            continue
        counts[ops.source[at] if ops.source[at] >= 0 else ops.peer[at]] += 1
    return counts


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _as_many(ahead: int) -> str:
    if ahead == 0:
        return "one for each that"
    more = "more" if ahead > 0 else "fewer"
    return f"{abs(ahead)} {more} than"
