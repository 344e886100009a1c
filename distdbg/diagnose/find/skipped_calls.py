"""A rank that skipped a call earlier, or made one more, and whose next ones fitted by chance. Pure.

    #1 obtain:28 < main:32     #2 main:34               rank 3
    #1 obtain:28 < main:31     #2 obtain:28 < main:32   ranks 0-2

From the skipped call on the rank calls from where the others call one op later, up to the one that differs;
from the call that it alone made, from where they called one op earlier.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.matching import GroupOps
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.wording import fit, say_ranks, say_site, site_of, verb

#: Calls before the one that differs.
_LIMIT: Final = 4096


class SkippedBefore(NamedTuple):
    """The words of a finding about a call that was skipped earlier."""

    what: str
    evidence: Evidence
    advice: str


def find_skipped_before(
    session: Session, ops: GroupOps, odd: tuple[int, ...], other: int, seq: int
) -> SkippedBefore | None:
    """Explain ranks whose call `seq` differs; None where their calls before do not show it."""
    extra = _reported_extra(session, ops, odd, other, seq)
    if extra is not None:
        return extra
    found = {_skipped(session, ops, rank, other, seq) for rank in odd}
    at = found.pop() if len(found) == 1 else None
    index, own = (None, None) if at is None else (ops.index(other, at), ops.index(odd[0], at))
    if at is None or index is None or own is None:
        return None
    missed, made = OpRef(other, index), OpRef(odd[0], own)
    mine, theirs = _parting_frames(session.stack_of(made), session.stack_of(missed))
    if not mine:
        return None
    whom = say_ranks(odd, 3)
    name, site = session.name_of(missed), site_of(session, missed)
    short = site.partition(" (")[0]
    caller = f", called from {theirs.partition(' (')[0]}" if theirs and theirs != site else ""
    return SkippedBefore(
        fit(f"{whom} skipped {name} at {short}{caller}", f"; noticed at #{seq}"),
        Evidence(
            text=f"#{at} of {whom} comes from {mine}, that of rank {other} from {theirs}: from there on "
            f"{whom} makes the calls that rank {other} makes one later",
            rank=odd[0],
            ranks=odd,
            op=missed,
            site=theirs,
            is_left_out=True,
        ),
        f"see why {whom} did not make that call: look for a condition around {theirs.partition(' (')[0]}",
    )


def _reported_extra(
    session: Session, ops: GroupOps, odd: tuple[int, ...], other: int, seq: int
) -> SkippedBefore | None:
    found = {_extra(session, ops, rank, other, seq) for rank in odd}
    at = found.pop() if len(found) == 1 else None
    index = None if at is None else ops.index(odd[0], at)
    if at is None or index is None:
        return None
    made = OpRef(odd[0], index)
    whom, site = say_ranks(odd, 3), site_of(session, made)
    return SkippedBefore(
        fit(
            f"{whom} made one {session.kind_of(made)} more, at {site.partition(' (')[0]}",
            f" (#{at})",
            f"; noticed at #{seq}",
        ),
        Evidence(
            text=f"{whom} called {session.name_of(made)} at {site}, and the others never did: from there on "
            f"{whom} makes the calls that rank {other} made one earlier",
            rank=odd[0],
            ranks=odd,
            op=made,
            site=site,
            is_extra=True,
        ),
        f"see why {whom} makes that call: all ranks of the group have to, or none",
    )


def _extra(session: Session, ops: GroupOps, rank: int, other: int, seq: int) -> int | None:
    """The number of the call that this rank alone made; the next ones are those of the other, one later."""
    if rank not in ops.by_rank or other not in ops.by_rank:
        return None
    first = max(ops.by_rank[rank].first_seq, ops.by_rank[other].first_seq, seq - _LIMIT)
    calls = range(first, seq + 1)
    mine = [_at(session, ops, rank, at) for at in calls]
    theirs = [_at(session, ops, other, at) for at in calls]
    if () in mine or () in theirs or session.ranks[rank].lost.get("ops"):
        return None
    at = next((i for i, stack in enumerate(mine) if stack != theirs[i]), None)
    if at is None or at + 1 == len(mine) or mine[at + 1 :] != theirs[at:-1]:
        return None
    return None if mine[at] in theirs else first + at


def _skipped(session: Session, ops: GroupOps, rank: int, other: int, seq: int) -> int | None:
    """The number of the call that only the other made."""
    if rank not in ops.by_rank or other not in ops.by_rank:
        return None
    first = max(ops.by_rank[rank].first_seq, ops.by_rank[other].first_seq, seq - _LIMIT)
    calls = range(first, seq)
    mine = [_at(session, ops, rank, at) for at in calls]
    theirs = [_at(session, ops, other, at) for at in range(first, seq + 1)]
    own = _at(session, ops, rank, seq)
    if () in mine or () in theirs or session.ranks[rank].lost.get("ops"):
        return None
    at = next((i for i, stack in enumerate(mine) if stack != theirs[i]), None)
    if at is None or mine[at:] != theirs[at + 1 :] or own == theirs[at]:
        return None  # or it makes the call now: in another order
    # Ranks may take turns from the beginning, where each makes the call of the other one later.
    return None if at == 0 and theirs[0] in mine else first + at


def _parting_frames(mine: Stack, theirs: Stack) -> tuple[str, str]:
    """Where two stacks part, from their outer ends."""
    for one, two in zip(mine[::-1], theirs[::-1], strict=False):
        if one != two:
            return say_site(one), say_site(two)
    return "", ""


def _at(session: Session, ops: GroupOps, rank: int, seq: int) -> Stack:
    index = ops.index(rank, seq)
    return () if index is None else session.stack_of(OpRef(rank, index))


class WentOn(NamedTuple):
    """The words of a finding about a rank that went on without a call."""

    what: str
    evidence: Evidence
    advice: str


def find_went_on(
    session: Session, ops: GroupOps, odd: tuple[int, ...], others: tuple[int, ...], seq: int
) -> WentOn | None:
    """Explain ranks whose call `seq` is not that of the `others`; None where their past does not show it.

    #13 main:14   #14 clip:6   #15 main:14   #16 main:14        rank 3
    #13 main:14   #14 clip:6   #15 main:14   #16 clip:6         ranks 0-2
    """
    if (
        not odd
        or not others
        or not all(_has_skipped_next(session, ops, r, others[0], seq) for r in odd)
    ):
        return None
    at, own = ops.index(others[0], seq), ops.index(odd[0], seq)
    if at is None or own is None:
        return None
    missed, made = OpRef(others[0], at), OpRef(odd[0], own)
    kind, whom = session.kind_of(made), say_ranks(odd, 3)
    what = fit(
        f"{whom} skipped {session.name_of(missed)} at {site_of(session, missed)}",
        f"; {verb(odd, 'it', 'they')} called {kind} at {site_of(session, made)}",
    )
    condition = "look for a condition, or a loop that ends earlier there"
    evidence = Evidence(
        text=f"{whom} skipped {session.name_of(missed)}",
        rank=odd[0],
        ranks=odd,
        op=missed,
        site=site_of(session, missed),
        is_left_out=True,
    )
    return WentOn(what, evidence, f"see why {whom} did not make that call: {condition}")


def _has_skipped_next(session: Session, ops: GroupOps, rank: int, other: int, seq: int) -> bool:
    """Whether its own past says that the call of the other comes next, and not the one it made."""
    expected = _stack_at(session, ops, other, seq)
    before = _stack_at(session, ops, rank, seq - 1)
    if not expected or not before or before != _stack_at(session, ops, other, seq - 1):
        return False
    if _stack_at(session, ops, rank, seq) == expected:
        return False
    first = ops.by_rank[rank].first_seq
    followers = {
        _stack_at(session, ops, rank, at + 1)
        for at in range(first, seq - 1)
        if _stack_at(session, ops, rank, at) == before
    }
    return followers == {expected}


def _stack_at(session: Session, ops: GroupOps, rank: int, seq: int) -> Stack:
    at = ops.index(rank, seq)
    return () if at is None else session.stacks[session.ranks[rank].ops.stack[at]]
