"""Stacks of many ranks as few: equal ones once, with the ranks that have them. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.session import Activity, Session, Stack
from distdbg.diagnose.traits import StackRole
from distdbg.record.libraries import is_library
from distdbg.record.observations import threads_in
from distdbg.record.rank_state import RankState
from distdbg.record.traceback_text import PACKAGE
from distdbg.render.gone import gone_from, read_site
from distdbg.render.source_line import with_whole_name
from distdbg.render.story import state_text
from distdbg.render.where import place_of

#: runpy, multiprocessing, threading ... of the standard library, our launcher, and what has no file.
_STARTS: Final = re.compile(
    r"^<|/lib/python3[^/]*/(?!site-packages|dist-packages)|/distdbg/launch/|^$"
)
#: Of ranks that have no record yet.
JOINING: Final = "in init_process_group"
_HANGS: Final = (RankState.ASLEEP, RankState.BUSY, RankState.BLOCKED_IO)
#: How far back the ops are looked at for the whole name of a file.
_MOST_STACKS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedStack:
    """One stack and who has it."""

    ranks: tuple[int, ...]
    what: str
    """'in recv from rank 1 ...', or the state that an agent saw."""
    frames: Stack
    """The innermost first."""
    role: StackRole = StackRole.SEEN


_NONE: Final[tuple[str, str, Stack, StackRole]] = ("", "", (), StackRole.SEEN)


def fold_stacks(session: Session, ranks: Iterable[int]) -> list[FoldedStack]:
    """What an agent saw before what the op was called from; the stack of most ranks first."""
    found: dict[tuple[str, Stack], list[int]] = {}
    roles: dict[tuple[str, Stack], StackRole] = {}
    whats: dict[tuple[str, Stack], set[str]] = {}
    for rank in sorted(set(ranks)):
        kind, what, frames, role = _stack_of(session, rank)
        if frames:
            roles.setdefault((kind, frames), role)
            found.setdefault((kind, frames), []).append(rank)
            whats.setdefault((kind, frames), set()).add(what)
    folded = [
        FoldedStack(
            ranks=tuple(members),
            # Messages have other peers on every rank.
            what=next(iter(whats[key])) if len(whats[key]) == 1 else key[0],
            frames=key[1],
            role=roles[key],
        )
        for key, members in found.items()
    ]
    return sorted(folded, key=lambda one: (-len(one.ranks), one.ranks))


def other_threads(session: Session, root: Finding, rank: int) -> Iterator[FoldedStack]:
    """Of a rank that waits for a lock or a queue: the lines of its own threads that it may wait for.

    Of one that is over, the evidence says what was seen before.
    """
    log = session.ranks.get(rank)
    if log is None:
        return
    seen = () if log.activity is None else (log.activity.why,)
    stacks = (() if log.activity is None else log.activity.stack, _stack_of(session, rank)[2])
    known = [frame for stack in stacks for frame in stack if os.path.isabs(frame.file)]
    told = dict.fromkeys(
        thread
        for text in (*seen, *(fact.text for fact in root.evidence if fact.rank == rank))
        for thread in threads_in(text)
    )
    for name, site in told:
        frame = read_site(site)
        if frame is not None:
            frames = (with_whole_name(frame, known),)
            what = f"thread {name}"
            yield FoldedStack(ranks=(rank,), what=what, frames=frames, role=StackRole.THREAD)


def own_frames(frames: Stack) -> Stack:
    """Without what started the program at the outer end, and without libraries."""
    end = len(frames)
    while end and _STARTS.search(frames[end - 1].file):
        end -= 1
    own = tuple(
        frame
        for frame in frames[:end]
        if not is_library(frame.file) and not frame.file.startswith(PACKAGE)
    )
    return own or frames[:end] or frames


def _stack_of(session: Session, rank: int) -> tuple[str, str, Stack, StackRole]:
    """What it is in as one word, in full, its frames, and what these are to it."""
    log = session.ranks.get(rank)
    if log is None:
        return _NONE
    if log.join is not None and log.is_joining and log.join.stack:
        return JOINING, JOINING, log.join.stack, StackRole.IN_OP
    gone = gone_from(session, rank)
    if gone is not None and gone.frames:
        return gone.kind, gone.what, gone.frames, StackRole.OVER
    place = place_of(session, rank)
    activity = log.activity
    # Who waits in an op is told by its call; what lies above that is ours.
    is_waiting = activity is not None and activity.state is RankState.WAITING
    if activity is not None and activity.stack and not (is_waiting and place is not None):
        return str(activity.state), state_text(activity), activity.stack, _role_of(activity)
    if place is None:
        return _NONE
    name = f"{place.verb} {session.name_of(place.op)}"
    kind = f"{place.verb} {session.kind_of(place.op)}"
    frame = read_site(activity.site) if activity is not None and place.verb == "after" else None
    if activity is not None and frame is not None and not activity.state.is_over:
        # Its last op is over: where it was seen since then is where it is.
        known = (one for at in set(log.ops.stack[-_MOST_STACKS:]) for one in session.stacks[at])
        return (
            str(activity.state),
            f"{state_text(activity)}, {name}",
            (with_whole_name(frame, known),),
            _role_of(activity),
        )
    role = StackRole.AFTER_OP if place.verb == "after" else StackRole.IN_OP
    return kind, name, session.stacks[place.stack], role


def _role_of(activity: Activity) -> StackRole:
    return StackRole.HANGS if activity.state in _HANGS else StackRole.SEEN
