"""A rank that went on without a call that had always followed the one before, as it did on the others.

    #13 main:14   #14 clip:6   #15 main:14   #16 main:14        rank 3
    #13 main:14   #14 clip:6   #15 main:14   #16 clip:6         ranks 0-2

Both calls fit the group, so their sizes differ and not their kinds: that is a consequence.
"""

from __future__ import annotations

from typing import NamedTuple

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.matching import GroupOps
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.wording import fit, say_ranks, site_of, verb


class WentOn(NamedTuple):
    """The words of a finding about a rank that went on without a call."""

    what: str
    evidence: Evidence
    advice: str


def find_went_on(
    session: Session, ops: GroupOps, odd: tuple[int, ...], others: tuple[int, ...], seq: int
) -> WentOn | None:
    """Of ranks whose call `seq` differs from that of the `others`; None where their past does not show it."""
    if not odd or not others or not all(_has_skipped(session, ops, r, others[0], seq) for r in odd):
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


def _has_skipped(session: Session, ops: GroupOps, rank: int, other: int, seq: int) -> bool:
    """Whether its own past says that the call of the other comes next, and not the one it made."""
    expected = _stack(session, ops, other, seq)
    before = _stack(session, ops, rank, seq - 1)
    if not expected or not before or before != _stack(session, ops, other, seq - 1):
        return False
    if _stack(session, ops, rank, seq) == expected:
        return False
    first = ops.by_rank[rank].first_seq
    followers = {
        _stack(session, ops, rank, at + 1)
        for at in range(first, seq - 1)
        if _stack(session, ops, rank, at) == before
    }
    return followers == {expected}


def _stack(session: Session, ops: GroupOps, rank: int, seq: int) -> Stack:
    at = ops.index(rank, seq)
    return () if at is None else session.stacks[session.ranks[rank].ops.stack[at]]
