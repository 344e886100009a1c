"""Stacks of many ranks as few: equal ones once, with the ranks that have them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.session import Session, Stack
from distdbg.render.where import place_of

#: runpy, multiprocessing, threading ... of the standard library, and what has no file.
_STARTS: Final = re.compile(r"^<|/lib/python3[^/]*/(?!site-packages|dist-packages)|^$")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedStack:
    """One stack and who has it."""

    ranks: tuple[int, ...]
    what: str
    """'in recv from rank 1 ...', or the state that an agent saw."""
    frames: Stack
    """The innermost first."""


def fold_stacks(session: Session, ranks: Iterable[int]) -> list[FoldedStack]:
    """What an agent saw before what the op was called from; the stack of most ranks first."""
    found: dict[tuple[str, Stack], list[int]] = {}
    for rank in sorted(set(ranks)):
        what, frames = _stack_of(session, rank)
        if frames:
            found.setdefault((what, frames), []).append(rank)
    folded = [
        FoldedStack(ranks=tuple(members), what=what, frames=frames)
        for (what, frames), members in found.items()
    ]
    return sorted(folded, key=lambda one: (-len(one.ranks), one.ranks))


def own_frames(frames: Stack) -> Stack:
    """Without what started the program at the outer end: the interpreter's own modules."""
    end = len(frames)
    while end and _STARTS.search(frames[end - 1].file):
        end -= 1
    return frames[:end] or frames


def _stack_of(session: Session, rank: int) -> tuple[str, Stack]:
    log = session.ranks.get(rank)
    if log is None:
        return "", ()
    place = place_of(session, rank)
    activity = log.activity
    if activity is not None and activity.stack:
        return str(activity.state), activity.stack
    if place is None:
        return "", ()
    name = f"{place.verb} {session.name_of(place.op)}"
    if activity is not None and activity.site and not place.is_in:
        name = f"{activity.state} at {activity.site}, {name}"
    return name, session.stacks[place.stack]
