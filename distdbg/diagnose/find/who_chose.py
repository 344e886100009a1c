"""The one rank whose group at a line is another one than that in which the others meet there. Pure.

    x.py:42    ranks 0,2 'replicas0'    rank 1 'replicas1'    rank 3 'split1'

Without rank 3 no two groups of that line share a rank, and it is a member of one of them; without any other
rank that is not so.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag

#: Of two ranks either may be wrong.
_FEWEST: Final = 3
#: Ranks of a line that are compared.
_MOST: Final = 512


class RankAtLine(NamedTuple):
    """One rank at one line."""

    rank: int
    op: OpRef
    used: int
    meant: int
    met: tuple[int, ...]
    """Who called it on the group that was meant."""
    others: tuple[tuple[int, tuple[int, ...]], ...]
    """Other groups, and who called it on those."""


def who_chose_another(session: Session, like: OpRef) -> RankAtLine | None:
    """Of all ranks that made the call of `like` at its place, each by its last; None where it is not one."""
    last = {rank: op for rank in session.ranks if (op := _last(session, rank, like)) is not None}
    if not _FEWEST <= len(last) <= _MOST:
        return None
    used = {rank: session.ranks[rank].ops.group[op.at] for rank, op in last.items()}
    found = [(rank, meant) for rank in last if (meant := _meant(session, used, rank)) is not None]
    if len(found) != 1:
        return None
    rank, meant = found[0]
    others: dict[int, list[int]] = {}
    for one, group in used.items():
        if one != rank and group != meant:
            others.setdefault(group, []).append(one)
    met = tuple(one for one, group in used.items() if group == meant)
    rest = tuple((group, tuple(ranks)) for group, ranks in others.items())
    return RankAtLine(rank, last[rank], used[rank], meant, met, rest)


def _meant(session: Session, used: dict[int, int], rank: int) -> int | None:
    """The group that a rank belongs in, by those of all others; None where they share a rank."""
    groups = {group for one, group in used.items() if one != rank}
    if used[rank] in groups:
        return None
    seen: set[int] = set()
    for group in groups:
        members = set(session.members(group))
        if not seen.isdisjoint(members):
            return None
        seen |= members
    return next((group for group in groups if rank in session.members(group)), None)


def _last(session: Session, rank: int, like: OpRef) -> OpRef | None:
    theirs = session.ranks[like.rank].ops
    stack, kind = session.stacks[theirs.stack[like.at]], session.kind_of(like)
    ops = session.ranks[rank].ops
    for at in range(len(ops) - 1, -1, -1):
        if ops.group[at] == NONE or ops.flags[at] & (Flag.MESSAGE | Flag.ASIDE):
            continue
        if session.stacks[ops.stack[at]] == stack and session.kind_of(OpRef(rank, at)) == kind:
            return OpRef(rank, at)
    return None
