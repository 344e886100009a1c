"""A message to, or from, another neighbor than on all other ranks: which of two halves is wrong. Pure.

    rank 2 sends to rank 0, ranks 0-1,3 to rank + 1; rank 3 waits for its message

Where all others send to rank + 1 in one function, and a rank waits for just that message of the one, its dst
is wrong.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.other_half import messages_of
from distdbg.diagnose.session import Session
from distdbg.diagnose.unmatched import PairDifference, UnmatchedPair, is_past_messages
from distdbg.diagnose.wording import say_ranks, site_of
from distdbg.record.format import Flag

#: With fewer others there is no rule to be broken.
_FEWEST: Final = 2
#: Messages of a rank that are looked at, from the last back.
_LIMIT: Final = 256


class OtherNeighbor(NamedTuple):
    """The words of a finding about a message to another neighbor."""

    rank: int
    cause: tuple[str, ...]
    advice: str


def find_other_neighbor(session: Session, pair: UnmatchedPair) -> OtherNeighbor | None:
    """Find which of two halves that differ in whom they name is wrong; None where no rule shows.

    The rule is that of one function: in another one the rank may well gather, or report. And who is named
    waits for a message there itself, or has made as many as the other: a rank that is late, or gone before,
    is waited for with reason.
    """
    if pair.differ not in (PairDifference.DST, PairDifference.SOURCE):
        return None
    is_send = pair.differ is PairDifference.DST
    wrong, other = (pair.send, pair.recv) if is_send else (pair.recv, pair.send)
    ops = session.ranks[wrong.rank].ops
    peer, group = ops.peer[wrong.at], ops.group[wrong.at]
    places = {rank: at for at, rank in enumerate(session.members(group))}
    if not {peer, wrong.rank, other.rank} <= places.keys() or [*places] != [*range(len(places))]:
        return None  # of a subgroup "rank + 1" would say something else
    if any(log.lost.get("ops") for log in session.ranks.values()):
        return None
    meant = (other.rank - wrong.rank) % len(places)
    if not (_waits_there(session, peer, wrong) or _has_made_its_own(session, peer, other, meant)):
        return None
    known = []
    for rank in places:
        steps = _steps(session, rank, wrong, len(places))
        if steps - {meant} and rank != wrong.rank:
            return None
        if steps and rank != wrong.rank:
            known.append(rank)
    own = _steps(session, wrong.rank, wrong, len(places))
    if len(known) < _FEWEST or own - {meant, (peer - wrong.rank) % len(places)}:
        return None
    verb, to, key = ("sends", "to", "dst") if is_send else ("receives", "from", "src")
    at = f" at {site.partition(' (')[0]}" if (site := site_of(session, wrong)) else ""
    waits = (
        f"; rank {other.rank} waits for its message"
        if is_send
        else f"; rank {other.rank} is sending to it"
    )
    others, step = say_ranks(known, 3), _say(meant, len(places))
    return OtherNeighbor(
        wrong.rank,
        (f"rank {wrong.rank} {verb} {to} rank {peer}{at}, {others} {to} {step}", waits),
        f"see how {key} is computed on rank {wrong.rank}: {others} name {step} there",
    )


def _steps(session: Session, rank: int, like: OpRef, count: int) -> set[int]:
    """How far away the ranks are that it has sent to, or received from, in the function of `like`."""
    log = session.ranks.get(rank)
    if log is None:
        return set()
    ops, kind = log.ops, session.kind_of(like)
    group, place = session.ranks[like.rank].ops.group[like.at], function_of(session, like)
    found: set[int] = set()
    for at in range(max(len(ops) - _LIMIT, 0), len(ops)):
        op = OpRef(rank, at)
        if ops.flags[at] & Flag.MESSAGE and ops.group[at] == group and ops.peer[at] >= 0:
            step = (ops.peer[at] - rank) % count
            if (
                step not in found
                and session.kind_of(op) == kind
                and function_of(session, op) == place
            ):
                found.add(step)
    return found


def _waits_there(session: Session, rank: int, like: OpRef) -> bool:
    log = session.ranks.get(rank)
    if log is None or log.is_gone:
        return False
    return any(
        log.ops.flags[at] & Flag.MESSAGE
        and function_of(session, OpRef(rank, at)) == function_of(session, like)
        for at in log.ops.in_flight()
    )


def _has_made_its_own(session: Session, rank: int, other: OpRef, meant: int) -> bool:
    """Whether a rank that is past messages has made as many as the other there, each with its neighbor."""
    if rank not in session.ranks or not is_past_messages(session, rank):
        return False
    count = len(session.members(session.ranks[other.rank].ops.group[other.at]))
    mine, theirs = (
        sum(
            function_of(session, op) == function_of(session, other)
            for op in messages_of(session, one, session.kind_of(other), other)
        )
        for one in (rank, other.rank)
    )
    return mine == theirs and _steps(session, rank, other, count) == {-meant % count}


def function_of(session: Session, op: OpRef) -> tuple[str, str]:
    frame = session.site_of(op)
    return ("", "") if frame is None else (frame.file, frame.function)


def _say(step: int, count: int) -> str:
    return f"rank + {step}" if 2 * step <= count else f"rank - {count - step}"
