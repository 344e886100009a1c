"""A call that was carried out on one group, where the program's line called it on another one elsewhere.

    average(x, rows if rank == 1 else cols)     rank 1's call pairs with a later one of the others on `rows`

The call found partners, so nothing fails there. The rank makes one call too many on that group, which the
others leave, and one too few on the group that was meant, where others wait for it. Its stack shows it: those
others wait in a call with the very same stack, and no other member of the group that was used has ever made
a call there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from distdbg.diagnose.find.crossed_calls import WrongPeerFact
from distdbg.diagnose.find.phrases import telling_site
from distdbg.diagnose.finding import Edge, Evidence
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.wording import known_ns, say_ranks
from distdbg.record.format import NO_COLLECTIVE

_ADVICE: Final = (
    "see how that line chooses the group: {ranks} takes another one there than the others"
)


def used_wrong_group(
    session: Session, matched: Matched, direct: Iterable[Edge], behind: Iterable[Edge]
) -> list[WrongPeerFact]:
    """Compare waits (`direct`) with those for these ranks on another group (`behind`): one fact per line."""
    found: dict[tuple[int, Stack], WrongPeerFact] = {}
    waiters: dict[tuple[int, int, Stack], list[Edge]] = {}
    for edge in direct:
        for other in behind:
            if other.op is None or edge.op is None or edge.rank not in other.on:
                continue
            call = _meant_for(session, matched, edge.op, other.op)
            if call is not None:
                waiters.setdefault((*call, session.stack_of(call)), []).append(other)
    for (rank, at, stack), others in waiters.items():
        found.setdefault((rank, stack), _miss(session, OpRef(rank, at), others))
    return list(found.values())


def _meant_for(session: Session, matched: Matched, blocked: OpRef, waiting: OpRef) -> OpRef | None:
    """The earlier call of a blocked rank, on the group it is blocked in, that `waiting` waits for."""
    rank, ops = blocked.rank, session.ranks[blocked.rank].ops
    used, meant = ops.group[blocked.at], _group(session, waiting)
    if _is_no_collective(session, blocked) or _is_no_collective(session, waiting) or used == meant:
        return None
    stack = session.stack_of(waiting)
    if not stack:
        return None
    mine = matched.of(used).by_rank.get(rank)
    calls = [at for at in mine.indexes if at >= 0] if mine is not None else []
    at = next((at for at in calls if session.stacks[ops.stack[at]] == stack), None)
    if at is None or session.kind_of(OpRef(rank, at)) != session.kind_of(waiting):
        return None
    if _is_called_there_by_others(session, matched, used, stack, rank):
        return None
    return OpRef(rank, at)


def _is_called_there_by_others(
    session: Session, matched: Matched, group: int, stack: Stack, rank: int
) -> bool:
    """Whether another member calls ops of the group at this place: then it belongs there."""
    for other, theirs in matched.of(group).by_rank.items():
        if other == rank:
            continue
        log = session.ranks[other]
        if log.lost.get("ops"):
            return True  # its first calls are not known
        stacks = log.ops.stack
        if any(at >= 0 and session.stacks[stacks[at]] == stack for at in theirs.indexes):
            return True
    return False


def _miss(session: Session, call: OpRef, waiting: Sequence[Edge]) -> WrongPeerFact:
    ops = [edge.op for edge in waiting if edge.op is not None]
    groups = _group(session, call), _group(session, ops[0])
    kind, others = session.kind_of(call), tuple(sorted({op.rank for op in ops}))
    calls = f"rank {call.rank} called {kind} on group {{}}, {say_ranks(others)} on group {{}}"
    labels = [f"'{session.groups[group].label}'" for group in groups]
    members = [f" ({say_ranks(session.members(group), 4)})" for group in groups]
    place = telling_site(session, call)
    where = place.partition(" (")[0]
    log = session.ranks[call.rank]
    evidence = Evidence(
        text=f"at {place} {calls.format(*map(str.__add__, labels, members))}",
        rank=call.rank,
        ranks=(call.rank, *others),
        op=call,
        site=place,
        at_ns=known_ns(session.time_ns(call.rank, log.ops.issued_ns[call.at])),
    )
    advice = _ADVICE.format(ranks=say_ranks((call.rank,)))
    return WrongPeerFact(evidence, advice, (f"at {where} {calls.format(*labels)}",), (call.rank,))


def _group(session: Session, op: OpRef) -> int:
    return session.ranks[op.rank].ops.group[op.at]


def _is_no_collective(session: Session, op: OpRef) -> bool:
    ops = session.ranks[op.rank].ops
    return bool(ops.flags[op.at] & NO_COLLECTIVE) or ops.group[op.at] < 0
