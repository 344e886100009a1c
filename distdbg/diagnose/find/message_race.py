"""Message races: receives from any rank that could have got another message instead.

Such a receive is right where the program checks the sender, or treats all alike. So it counts only on lines
that drop the rank which recv returns (the rank itself writes down those lines), and where the program
tells the messages apart: they have different shapes, or they are received at different lines.

    WARNING    different shapes, or lines: in another order the data is another one, or an error
    NOTE       alike, and received by one line: the order may matter, or not

A message could have been taken instead when its send did not depend on the end of that receive, by vector
clocks over all messages and collectives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from distdbg.diagnose.find.phrases import at_site, called
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Waits
from distdbg.diagnose.happened import MessageOrder, order_of
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import fit, short_site, site_of
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag
from distdbg.record.known_marks import SOURCE_DROPPED

_RECV: Final = KIND_LABELS.index("recv")
_MAX_FINDINGS: Final = 16


class _Race(NamedTuple):
    recv: OpRef
    took: OpRef
    other: OpRef
    later: OpRef | None
    """What received the other message."""


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """One finding for each line that receives."""
    dropped = {
        (rank, short_site(found.what))
        for rank, log in session.ranks.items()
        for found in log.found
        if found.type == SOURCE_DROPPED
    }
    recvs = [op for op in _open_recvs(session) if (op.rank, site_of(session, op)) in dropped]
    order = order_of(session) if recvs else None
    if order is None:
        return []
    races: dict[tuple[int, str], list[_Race]] = defaultdict(list)
    senders = {recv: send for send, recv in order.taken.items()}
    for recv in recvs:
        if recv in senders:
            race = _race_of(session, order, recv, senders[recv])
            if race is not None:
                races[recv.rank, site_of(session, recv)].append(race)
    return [_say(session, mine) for mine in races.values()][:_MAX_FINDINGS]


def _open_recvs(session: Session) -> Iterator[OpRef]:
    for rank, log in session.ranks.items():
        ops = log.ops
        if NONE not in ops.source and NONE not in ops.peer:
            continue
        for at, (flags, kind, peer) in enumerate(zip(ops.flags, ops.kind, ops.peer, strict=True)):
            if peer == NONE and kind == _RECV and flags & Flag.MESSAGE and not ops.status[at]:
                yield OpRef(rank, at)


def _race_of(session: Session, order: MessageOrder, recv: OpRef, took: OpRef) -> _Race | None:
    """With the first message of another sender that would have fitted; one that matters is preferred."""
    ops = session.ranks[recv.rank].ops
    group, tag = ops.group[recv.at], ops.tag[recv.at]
    found: _Race | None = None
    for (of, sender, receiver, with_tag), sends in order.routes.items():
        if (of, receiver, with_tag) != (group, recv.rank, tag) or sender == took.rank:
            continue
        for send in sends:
            later = order.taken.get(send)
            if later is not None and later.at <= recv.at:
                continue
            if send in order.sent and not order.has_seen(recv, send):
                race = _Race(recv, took, send, later)
                if _matters(session, race):
                    return race
                found = found or race
            break
    return found


def _matters(session: Session, race: _Race) -> bool:
    if _shape(session, race.took) != _shape(session, race.other):
        return True
    if race.later is None:
        return False
    ops = session.ranks[race.recv.rank].ops
    return ops.stack[race.recv.at] != ops.stack[race.later.at]


def _shape(session: Session, send: OpRef) -> tuple[object, ...]:
    form = session.form_of(send)
    return form.dtype, form.inputs, form.nbytes


def _say(session: Session, races: list[_Race]) -> Finding:
    serious = [race for race in races if _matters(session, race)]
    race = (serious or races)[0]
    recv, took, other, later = race
    rank = recv.rank
    ops = session.ranks[rank].ops
    group = session.group_of(recv)
    evidence = [
        called(session, recv, f"rank {rank} received from any rank{at_site(session, recv)}"),
        called(session, took, f"rank {took.rank} sent the message that it took{at_site(session, took)}"),
        called(
            session, other,
            f"rank {other.rank} sent a message that would have matched as well{at_site(session, other)}",
        ),
    ]  # fmt: skip
    if later is not None:
        evidence.append(
            called(session, later, f"rank {rank} received that one later{at_site(session, later)}")
        )
    return Finding(
        kind=FindingKind.MESSAGE_RACE,
        severity=Severity.WARNING if serious else Severity.NOTE,
        what=fit(
            f"rank {rank}'s recv{at_site(session, recv)} took rank {took.rank}'s message",
            f"; rank {other.rank}'s would have matched as well",
        ),
        ranks=(rank,),
        group=group.label if group else "",
        at_ns=session.time_ns(rank, ops.issued_ns[recv.at]),
        evidence=tuple(evidence),
        advice="name the sender (src=), use one tag per sender, or use the rank that recv returns",
        numbers={"times": float(len(serious or races))},
    )
