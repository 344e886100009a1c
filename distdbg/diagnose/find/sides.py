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
    """The ranks outside the side of the majority, else of the one that sends to all; () without either."""
    source = _source_of(session, [op for side in sides for op in side])
    has_room = source is None or not _is_empty(session, sides[0][0])
    if len(sides) > 1 and 2 * len(sides[0]) > sum(map(len, sides)) and has_room:
        return tuple(sorted(op.rank for side in sides[1:] for op in side))
    others = (
        side for side in sides if source is not None and all(op.rank != source for op in side)
    )
    return tuple(sorted(op.rank for side in others for op in side))


def _is_empty(session: Session, op: OpRef) -> bool:
    """Whether it has no room for what is sent to all: a majority of such ranks is none."""
    form = session.forms[session.ranks[op.rank].ops.form[op.at]]
    return any(0 in shape for shape in (*form.inputs.items, *form.outputs.items))


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
