"""Where a rank that is gone was: between which ops it died, where it raised, after what it exited. Pure.

    died after all_reduce #7 on group 'world', before #8; last known line:
    crashed after all_reduce #7 on group 'world', before #8
    raised ValueError, after all_reduce #4 on group 'world'
    raised MismatchError in barrier #48 on group 'world'
    raised MismatchError for all_reduce #3 on group 'world', which it called here
    exited after barrier #9 on group 'world'

The last op of such a rank is not where it is: of one that died nobody knows the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.ops import NONE, OpRef
from distdbg.diagnose.session import RankLog, Session, Stack
from distdbg.diagnose.wording import say_site, short_site
from distdbg.record.entries import RecordedFrame
from distdbg.record.format import NO_COLLECTIVE, Exit, Flag, Status
from distdbg.render.source_line import with_whole_name
from distdbg.render.where import place_of

#: How far back the ops are looked at for the whole name of a file.
_MOST_STACKS: Final = 10_000


@dataclass(frozen=True, slots=True)
class EndedRank:
    """The last that is known of a rank that is gone."""

    kind: str
    """'died after all_reduce': the same for ranks whose peers differ."""
    what: str
    frames: Stack
    """The innermost first; () where no line is known."""


def gone_from(session: Session, rank: int) -> EndedRank | None:
    """None for a rank that is there, or whose op says best where it was: it waited, and was ended there."""
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
        return EndedRank("crashed", f"crashed{after}{before}", log.left_stack)
    if place is None:
        return None
    word = "died" if died else "exited" if not log.end.is_failure else "exited with an error"
    what = f"{word} after {session.name_of(place.op)}"
    if died:
        what += f"{_before(session, place.op)}; last known line:"
    kind = f"{word} after {session.kind_of(place.op)}"
    return EndedRank(kind, what, session.stacks[place.stack])


def _raised(session: Session, log: RankLog) -> EndedRank | None:
    name = log.exit_type or "an exception"
    place = place_of(session, log.rank)
    begun = _begun_before(session, log) if name == "MismatchError" else None
    if begun is not None:  # where it waits says nothing of what it called
        what = f"raised {name} for {session.name_of(begun)}, which it called here"
        kind = f"raised {name} for {session.kind_of(begun)}"
        return EndedRank(kind, what, session.stacks[log.ops.stack[begun.at]])
    if place is not None and place.verb != "after":
        return None  # it gave up in an op, or waits there
    if place is not None and _is_error_of(session, place.op, log):
        what = f"raised {name} in {session.name_of(place.op)}"
        kind = f"raised {name} in {session.kind_of(place.op)}"
        return EndedRank(kind, what, session.stacks[place.stack])
    after = f", after {session.name_of(place.op)}" if place is not None else ""
    if log.left_stack:
        return EndedRank(f"raised {name}", f"raised {name}{after}", log.left_stack)
    frame = read_site(log.exit_where)
    if frame is None:
        return None
    known = (one for at in set(log.ops.stack[-_MOST_STACKS:]) for one in session.stacks[at])
    frame = with_whole_name(frame, known)
    return EndedRank(f"raised {name}", f"raised {name}{after}", (frame,))


def _begun_before(session: Session, log: RankLog) -> OpRef | None:
    """The asynchronous op of which a mismatch was raised at another line; None: there is none."""
    ops = log.ops
    for at in reversed(range(max(0, len(ops) - _MOST_STACKS), len(ops))):
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
