"""Stacks of many ranks as few: equal ones once, with the ranks that have them. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import Activity, RankLog, Session, Stack
from distdbg.diagnose.traits import StackRole
from distdbg.diagnose.wording import say_site, short_site
from distdbg.record.format import NO_COLLECTIVE, Exit, Flag, Status
from distdbg.record.libraries import is_library
from distdbg.record.observations import threads_in
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.traceback_text import PACKAGE
from distdbg.render.source_line import with_whole_name
from distdbg.render.story import state_text
from distdbg.render.where import place_of

#: runpy, multiprocessing, threading ... of the standard library, our launcher, and what has no file.
_STARTS: Final = re.compile(
    r"^<|/lib/python3[^/]*/(?!site-packages|dist-packages)|/distdbg/launch/|^$"
)
#: What ranks do that have no record yet.
JOINING: Final = "in init_process_group"
_HANGS: Final = (RankState.ASLEEP, RankState.BUSY, RankState.BLOCKED_IO)
#: How far back the ops are looked at for the whole name of a file.
_MAX_STACKS: Final = 10_000


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
    """List the lines of a rank's own threads that it may wait for, where it waits for a lock or a queue.

    Of one that is over, the evidence says what was seen before.
    """
    log = session.ranks.get(rank)
    if log is None:
        return
    seen = () if log.activity is None else (log.activity.why,)
    stacks = (() if log.activity is None else log.activity.stack, _stack_of(session, rank)[2])
    known = [frame for stack in stacks for frame in stack if os.path.isabs(frame.file)]
    reported = dict.fromkeys(
        thread
        for text in (*seen, *(fact.text for fact in root.evidence if fact.rank == rank))
        for thread in threads_in(text)
    )
    for name, site in reported:
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
    # The call says where a rank waits in an op; the frames above it are ours.
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
        known = (one for at in set(log.ops.stack[-_MAX_STACKS:]) for one in session.stacks[at])
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


@dataclass(frozen=True, slots=True)
class _EndedRank:
    """The last that is known of a rank that is gone."""

    kind: str
    """'died after all_reduce': the same for ranks whose peers differ."""
    what: str
    frames: Stack
    """The innermost first; () where no line is known."""


def gone_from(session: Session, rank: int) -> _EndedRank | None:
    """None for a rank that is there, or whose op says best where it was: it waited, and was ended there.

    The last op of such a rank is not where it is: of one that died nobody knows the line.

        died after all_reduce #7 on group 'world', before #8; last known line:
        raised MismatchError for all_reduce #3 on group 'world', which it called here
        exited after barrier #9 on group 'world'
    """
    log = session.ranks.get(rank)
    if log is None:
        return None
    if log.exit is Exit.RAISED:
        return _raised(session, log)
    if log.end is None or log.end.was_asked:
        return None
    place = place_of(session, rank)
    if place is not None and (place.is_in or place.verb != "after"):
        return None
    died = log.end.cause in ("signal", "oom")
    if died and log.activity is not None and log.activity.stack:
        return None  # somebody has seen where it was
    if died and log.left_stack:
        after = f" after {session.name_of(place.op)}" if place is not None else ""
        before = _before(session, place.op) if place is not None else ""
        return _EndedRank("crashed", f"crashed{after}{before}", log.left_stack)
    if place is None:
        return None
    word = "died" if died else "exited" if not log.end.is_failure else "exited with an error"
    what = f"{word} after {session.name_of(place.op)}"
    if died:
        what += f"{_before(session, place.op)}; last known line:"
    kind = f"{word} after {session.kind_of(place.op)}"
    return _EndedRank(kind, what, session.stacks[place.stack])


def _raised(session: Session, log: RankLog) -> _EndedRank | None:
    name = log.exit_type or "an exception"
    place = place_of(session, log.rank)
    begun = _begun_before(session, log) if name == "MismatchError" else None
    if begun is not None:  # where it waits says nothing of what it called
        what = f"raised {name} for {session.name_of(begun)}, which it called here"
        kind = f"raised {name} for {session.kind_of(begun)}"
        return _EndedRank(kind, what, session.stacks[log.ops.stack[begun.at]])
    if place is not None and place.verb != "after":
        return None  # it gave up in an op, or waits there
    if place is not None and _is_error_of(session, place.op, log):
        what = f"raised {name} in {session.name_of(place.op)}"
        kind = f"raised {name} in {session.kind_of(place.op)}"
        return _EndedRank(kind, what, session.stacks[place.stack])
    after = f", after {session.name_of(place.op)}" if place is not None else ""
    if log.left_stack:
        return _EndedRank(f"raised {name}", f"raised {name}{after}", log.left_stack)
    frame = read_site(log.exit_where)
    if frame is None:
        return None
    known = (one for at in set(log.ops.stack[-_MAX_STACKS:]) for one in session.stacks[at])
    frame = with_whole_name(frame, known)
    return _EndedRank(f"raised {name}", f"raised {name}{after}", (frame,))


def _begun_before(session: Session, log: RankLog) -> OpRef | None:
    """The asynchronous op of which a mismatch was raised at another line; None: there is none."""
    ops = log.ops
    for at in reversed(range(max(0, len(ops) - _MAX_STACKS), len(ops))):
        if ops.status[at] == Status.MISMATCH:
            op = OpRef(log.rank, at)
            is_later = ops.flags[at] & Flag.ASYNC and not _is_error_of(session, op, log)
            return op if is_later and session.stacks[ops.stack[at]] else None
    return None


def _is_error_of(session: Session, op: OpRef, log: RankLog) -> bool:
    """Whether what it raised is what the op failed with, as far as the places tell."""
    where = short_site(log.exit_where)
    frames = session.stacks[log.ops.stack[op.at]]
    failed = log.ops.status[op.at] != Status.OK
    return failed and (not where or any(say_site(frame) == where for frame in frames))


def _before(session: Session, op: OpRef) -> str:
    """', before #8': the next of its group, which it never called."""
    ops = session.ranks[op.rank].ops
    if ops.flags[op.at] & NO_COLLECTIVE or ops.group[op.at] == NONE:
        return ""
    return f", before #{ops.seq[op.at] + 1}"


def read_site(text: str) -> RecordedFrame | None:
    """'/job/train.py:80 (step)' as a frame; None for what is none."""
    head, _, function = text.partition(" (")
    file, _, line = head.rpartition(":")
    if not file or not line.isdecimal() or len(line) > 9:
        return None
    return RecordedFrame(file, int(line), function.removesuffix(")"))
