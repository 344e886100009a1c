"""The ranks of one op by what they called: who differs, and from whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdbg.diagnose.comparing import Comparer
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session


def find_sides(comparer: Comparer, calls: Mapping[int, OpRef]) -> list[list[OpRef]]:
    """Who called what, the largest side first; a call of which too little is known is on any side."""
    sides: list[list[OpRef]] = []
    for _, op in sorted(calls.items()):
        for side in sides:
            if not comparer.differing(op, side[0]):
                side.append(op)
                break
        else:
            sides.append([op])
    return sorted(sides, key=lambda side: (-len(side), side[0].rank))


def odd_ranks(session: Session, sides: Sequence[Sequence[OpRef]]) -> tuple[int, ...]:
    """The ranks outside the side of the majority, or of the one that sends to all; () without either."""
    source = _source_of(session, [op for side in sides for op in side])
    if source is not None:
        others = (side for side in sides if all(op.rank != source for op in side))
        return tuple(sorted(op.rank for side in others for op in side))
    if len(sides) < 2 or 2 * len(sides[0]) <= sum(map(len, sides)):
        return ()
    return tuple(sorted(op.rank for side in sides[1:] for op in side))


def _source_of(session: Session, calls: Sequence[OpRef]) -> int | None:
    """Of one broadcast the rank whose array the others have to fit; None for anything else."""
    roots = {
        (session.kind_of(op), session.forms[session.ranks[op.rank].ops.form[op.at]].root)
        for op in calls
    }
    kind, root = roots.pop()
    if roots or kind != "broadcast" or all(op.rank != root for op in calls):
        return None
    return root
