"""Variables that differ between ranks just as their calls do: each side agrees, and no two sides do. Pure.

    config["bucket_kb"] = 128 on ranks 0-1; config["bucket_kb"] = 96 on ranks 2-3

What each rank has of its own (its number, its loss) differs within a side as well, and is not told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks
from distdbg.record.entries import RecordedFrame
from distdbg.record.values import KEYS_OF
from distdbg.render.where import place_of

Sides = tuple[tuple[int, ...], ...]

_MOST_NAMES: Final = 3
_MOST_SIDES: Final = 3
#: An array is what differs, and no reason for it.
_ARRAY: Final = re.compile(r"\w+\[")


def sides_of(session: Session, root: Finding) -> Sides:
    """The ranks of a mismatch by what they called; () where too few are known to compare them."""
    if root.kind is not FindingKind.MISMATCH:
        return ()
    ranks = sorted({*root.ranks, *root.victims})
    if root.ranks and root.victims:
        sides: Sides = (root.ranks, tuple(r for r in ranks if r not in root.ranks))
    else:
        by_form: dict[int, list[int]] = {}
        for rank in ranks:
            place = place_of(session, rank)
            if place is None:
                return ()
            by_form.setdefault(session.ranks[rank].ops.form[place.op.at], []).append(rank)
        sides = tuple(map(tuple, by_form.values()))
    is_told = 1 < len(sides) <= _MOST_SIDES and any(len(side) > 1 for side in sides)
    return sides if is_told else ()


def parting_values(
    session: Session, sides: Sides, frame: RecordedFrame, said: Collection[str]
) -> list[str]:
    """Of one line that all have come to; `said`: what is told of it already."""
    known = [_common(session, side, frame) for side in sides]
    if not known or not all(known):
        return []
    names = [
        name
        for name, text in known[0].items()
        if all(name in one for one in known)
        and len({one[name] for one in known}) == len(known)
        and not _ARRAY.match(text)
    ]
    # An order before numbers, and these before lengths.
    names.sort(key=lambda name: (not name.startswith(KEYS_OF), not known[0][name].startswith("= ")))
    told = (
        _say_keys(name.removeprefix(KEYS_OF), [one[name] for one in known], sides)
        if name.startswith(KEYS_OF)
        else "; ".join(
            f"{name} {one[name]} on {say_ranks(side)}"
            for one, side in zip(known, sides, strict=True)
        )
        for name in names
    )
    return [text for text in told if not any(text in one for one in said)][:_MOST_NAMES]


def _say_keys(name: str, orders: Sequence[str], sides: Sides) -> str:
    """'params has its keys in another order on rank 0 than on ranks 1-3', or 'params has other keys ...'."""
    are_alike = len({text.rpartition(" of ")[2] for text in orders}) == 1
    how = "its keys in another order" if are_alike else "other keys"
    return f"{name} has {how} on {say_ranks(sides[0])} than on {say_ranks(sides[1])}"


def _common(session: Session, ranks: Iterable[int], frame: RecordedFrame) -> dict[str, str]:
    """What is the same on all of these ranks."""
    each = [session.ranks[rank].left_values.get((frame.file, frame.line), {}) for rank in ranks]
    return {name: text for name, text in each[0].items() if all(o.get(name) == text for o in each)}
