"""A rank that made a call once more than the others, which have gone on to what comes behind it. Pure.

    statistics:61    15 times                       rank 1
    statistics:61    14 times, and then main:83     ranks 0,2

Where it made it once too often does not show: all calls of the line fitted, and their results may be mixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import fit, say_ranks, site_of

_Site = tuple[str, int]


class OneMoreCall(NamedTuple):
    """The words of a finding about one call too many."""

    what: str
    advice: Advice


def find_one_more_call(
    session: Session, calls: Mapping[int, OpRef], odd: Sequence[int]
) -> OneMoreCall | None:
    """Of the ranks `odd`, whose call is another one than that of the others; None where it does not show."""
    others = [rank for rank in sorted(calls) if rank not in odd]
    if not odd or not others or not calls.keys() >= set(odd):
        return None
    counts = {rank: _count(session, op) for rank, op in calls.items()}
    again, behind = _site(session, calls[odd[0]]), _site(session, calls[others[0]])
    mine, theirs = counts[odd[0]], counts[others[0]]
    if None in (again, behind) or again == behind or not all(counts.values()):
        return None
    if any(counts[rank] != mine for rank in odd) or any(counts[r] != theirs for r in others):
        return None
    # What the others went on to is new to all; a line that all come to again may only be out of order.
    expected = mine.copy()
    expected[again] -= 1
    expected[behind] += 1
    if theirs != expected or theirs[behind] != 1 or theirs[again] < 1:
        return None
    whom, they = say_ranks(odd, 3), say_ranks(others, 3)
    made, count = calls[odd[0]], mine[again]
    place = site_of(session, made).partition(" (")[0]
    on_to = site_of(session, calls[others[0]]).partition(" (")[0]
    return OneMoreCall(
        fit(
            f"{whom} called {session.kind_of(made)} at {place} {count} times, {they} {count - 1} times",
            f", and went on to {on_to}",
        ),
        Advice(
            f"see what repeats that call on {whom}, be it long before: a retry, or a round more; results "
            "since then are of calls that do not belong together",
            Trait.ONE_MORE_CALL,
        ),
    )


def _count(session: Session, last: OpRef) -> Counter[_Site | None]:
    """How often each line called on that group until then; nothing where the first calls are not known."""
    log = session.ranks[last.rank]
    ops, group = log.ops, log.ops.group[last.at]
    if log.lost.get("ops"):
        return Counter()
    mine = (OpRef(last.rank, at) for at in range(last.at + 1) if ops.group[at] == group)
    return Counter(_site(session, op) for op in mine)


def _site(session: Session, op: OpRef) -> _Site | None:
    frame = session.site_of(op)
    return None if frame is None else (frame.file, frame.line)
