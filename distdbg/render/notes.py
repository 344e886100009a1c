"""What is worth saying of the source around the lines of a stack, by what was found. Pure.

deadlock, mismatch      conditions and loops, and where the argument is from that matters
raised, crashed         conditions and loops
late or stuck rank      conditions and loops around the line that it does not leave
a call too few          ... and what skips the call, or ends the loop
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.traits import Trait
from distdbg.record.format import Exit
from distdbg.render.where import place_of

#: Keywords that say with whom and how: of calls on which ranks wait for each other.
MEETING: Final = ("group", "tag", "dst", "src")
#: Ranks that are compared, where all differ.
_MAX_RANKS: Final = 16
_WAITED_FOR: Final = frozenset(
    (FindingKind.MISSING_RANK, FindingKind.STOPPED, FindingKind.STUCK_RANK, FindingKind.STALL)
)


class NoteRequest(NamedTuple):
    """What is wanted of the source around one stack."""

    first: Sequence[str] = ()
    """Keywords of the call whose origin matters more than that of its first argument."""
    origin: bool = True
    """Whether it matters where the argument is from."""
    exits: bool = False
    """Whether it matters what ends a loop, or skips what is in it."""


#: Notes for a place where a call was left out.
LEFT_OUT: Final = NoteRequest(origin=False, exits=True)


def wanted_of_cause(session: Session, root: Finding) -> NoteRequest | None:
    """Choose the notes for the stacks of the cause."""
    if root.kind is FindingKind.MISMATCH:
        return NoteRequest(_what_differs(session, root), exits=root.has(Trait.OTHER_ARRAY))
    if root.kind is FindingKind.DEADLOCK:
        return NoteRequest(MEETING)
    if root.kind is FindingKind.DEAD_RANK:
        return NoteRequest(origin=False)
    if root.kind not in _WAITED_FOR:
        return None
    has_gone = any(_has_gone(session, rank) for rank in root.ranks)
    return NoteRequest(MEETING, origin=root.kind is FindingKind.MISSING_RANK, exits=has_gone)


def wanted_of_others(
    session: Session, root: Finding, frames: Stack, cause: Sequence[Stack]
) -> NoteRequest | None:
    """Choose the notes for a stack of other ranks: only where it is at another line than the cause."""
    if any(one[:1] == frames[:1] for one in cause):
        return None
    if root.kind is FindingKind.MISMATCH:
        return NoteRequest(_what_differs(session, root), exits=True)
    if root.kind is FindingKind.MISSING_RANK and any(
        _has_gone(session, rank) for rank in root.ranks
    ):
        return NoteRequest(origin=False, exits=True)
    if root.kind not in (FindingKind.DEADLOCK, FindingKind.MISSING_RANK):
        return None
    return NoteRequest(MEETING, origin=not cause)


def _what_differs(session: Session, root: Finding) -> Sequence[str]:
    """The keywords of what a rank of the cause gave otherwise; () for its array, or another op."""
    some = (root.ranks[0], root.victims[0]) if root.ranks and root.victims else root.victims
    places = [place_of(session, rank) for rank in some[:_MAX_RANKS]]
    ops = [place.op for place in places if place is not None]
    if len({session.kind_of(op) for op in ops}) != 1:
        return ()
    forms = [session.form_of(op) for op in ops]
    if len({form.root for form in forms}) > 1:
        return ("src", "dst", "root")
    return ("op",) if len({form.op for form in forms}) > 1 else ()


def _has_gone(session: Session, rank: int) -> bool:
    """Whether it ended by itself, without an error, so that it makes no call any more."""
    log = session.ranks.get(rank)
    return log is not None and log.exit in (Exit.RETURNED, Exit.LEFT)
