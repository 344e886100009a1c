"""A rank that answers each message, and waits for the next one without an answer to the last. Pure.

    rank 3 received at farm.py:41 and sent no answer at farm.py:50, as after its 12 messages before

Both sides are in a recv. What makes it sure: each message of that line was answered so far, by this rank
or by others that do the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from distdbg.diagnose.find.astray import WrongPeerFact
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.ops import IN_FLIGHT, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import site_of
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
    """Those that went well, and the one in flight, in order; None where some of them are not known."""
    log = session.ranks[rank]
    if log.lost.get("ops"):
        return None
    ops = log.ops
    return [
        OpRef(rank, at)
        for at in range(len(ops))
        if ops.flags[at] & Flag.MESSAGE and ops.status[at] in (Status.OK, IN_FLIGHT)
    ]


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
