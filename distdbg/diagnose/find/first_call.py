"""Calls that differ at lines which no rank, or one rank alone, has ever called before in the run.

    rank 1 called all_reduce at x.py:19 (clip) for the first time in this run; no other rank ever did

A line that one rank alone has called stands under a condition on something that only this rank has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from distdbg.check.short_batch import is_short_batch, other_array_hint, several_sizes_hint
from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import say_ranks, say_site
from distdbg.record.recorded_frame import RecordedFrame

#: So many calls may another one be off in a loop over arrays.
_NEAR: Final = 4
_BEFORE: Final = 64


class FirstCall(NamedTuple):
    """The words of a finding about a line that was called for the first time."""

    evidence: Evidence
    advice: str = ""


def find_first_call(
    session: Session, calls: Mapping[int, OpRef], odd: Sequence[int]
) -> FirstCall | None:
    """None where the line was called before, or the record no longer has the first calls."""
    logs = [session.ranks[rank] for rank in calls]
    if len(calls) < 2 or not odd or any(log.lost.get("ops") for log in session.ranks.values()):
        return None
    frames = {rank: session.site_of(op) for rank, op in calls.items()}
    places = set(frames.values())
    if len(places) == 1:
        frame = frames[logs[0].rank]
        if frame is None or any(_count(session, rank, frame) != 1 for rank in calls):
            return None
        if not any(op.at for op in calls.values()):
            return None  # the first call of all
        who = say_ranks(calls, 3)
        first = calls[min(calls)]
        return FirstCall(
            _evidence(session, first, frame, f"{who} called {{}} for the first time in this run")
        )
    mine = {frames[rank] for rank in odd if rank in frames}
    frame = mine.pop() if len(mine) == 1 else None
    if frame is None or any(frames[rank] == frame for rank in calls if rank not in odd):
        return None
    if any(_count(session, rank, frame) != (rank in odd) for rank in session.ranks):
        return None
    if not any(_was_made_before(session, calls[rank]) for rank in calls if rank not in odd):
        return None  # a program that has just begun calls all lines for the first time
    whom, place = say_ranks(odd, 3), say_site(frame)
    text = f"{whom} called {{}} for the first time in this run; no other rank ever did"
    advice = Advice(
        f"see the condition under which {whom} comes to {place}: it may depend on its own data",
        Trait.OTHER_LINES,
    )
    return FirstCall(_evidence(session, calls[odd[0]], frame, text), advice)


def other_array_advice(session: Session, calls: Mapping[int, OpRef], odd: Sequence[int]) -> str:
    """Where another array came to one line, and not one of another size; ''.

    So it is where dtype and shape differ, or where one gave what the other gives some calls later or earlier.
    """
    others = [rank for rank in sorted(calls) if rank not in odd]
    if not others or not odd or odd[0] not in calls:
        return ""
    one, two = calls[odd[0]], calls[others[0]]
    forms = [session.form_of(op) for op in (one, two)]
    is_one_line = session.site_of(one) == session.site_of(two) is not None
    differs = forms[0].dtype != forms[1].dtype and forms[0].inputs != forms[1].inputs
    differs = differs or (
        forms[0].inputs != forms[1].inputs
        and not _is_short(session, one, two)
        and (_is_near(session, one, two) or _is_near(session, two, one))
    )
    if not is_one_line or session.kind_of(one) != session.kind_of(two):
        return ""
    if not differs and forms[0].inputs != forms[1].inputs and _varies(session, one):
        return Advice(several_sizes_hint(f" on {say_ranks(odd, 3)}"), Trait.SIZES)
    if not differs:
        return ""
    has_types = forms[0].dtype != forms[1].dtype
    traits = (Trait.OTHER_ARRAY, Trait.DTYPES) if has_types else (Trait.OTHER_ARRAY,)
    return Advice(other_array_hint(f" on {say_ranks(odd, 3)}"), *traits)


def _varies(session: Session, op: OpRef) -> bool:
    """Whether its rank has given that line arrays of several sizes before."""
    ops, place = session.ranks[op.rank].ops, session.site_of(op)
    sizes = {
        str(session.forms[ops.form[at]].inputs.items)
        for at in range(max(op.at - _BEFORE, 0), op.at)
        if session.site_of(OpRef(op.rank, at)) == place
    }
    return len(sizes) > 1


def _is_short(session: Session, one: OpRef, two: OpRef) -> bool:
    """Whether it may be the shorter last batch of a loop."""
    first = [session.form_of(op).inputs.items for op in (one, two)]
    seq = session.ranks[one.rank].ops.seq[one.at]
    mine, theirs = (tuple(items[0]) if items else () for items in first)
    return is_short_batch(mine, theirs, seq) or is_short_batch(theirs, mine, seq)


def _is_near(session: Session, call: OpRef, other: OpRef) -> bool:
    """Whether `call` is of the form of a call of the other rank near `other`, at that line."""
    mine, theirs = session.ranks[call.rank].ops, session.ranks[other.rank].ops
    wanted, place = session.forms[mine.form[call.at]], session.site_of(other)
    near = range(max(other.at - _NEAR, 0), min(other.at + _NEAR + 1, len(theirs)))
    return any(
        session.forms[theirs.form[at]] == wanted and session.site_of(OpRef(other.rank, at)) == place
        for at in near
        if theirs.group[at] == mine.group[call.at]
    )


def _evidence(session: Session, op: OpRef, frame: RecordedFrame, text: str) -> Evidence:
    place = say_site(frame)
    words = text.format(f"{session.kind_of(op)} at {place}")
    return Evidence(text=words, rank=op.rank, op=op, site=place)


def _was_made_before(session: Session, op: OpRef) -> bool:
    """Whether its rank has called from there before, as in a loop."""
    stacks = session.ranks[op.rank].ops.stack
    return stacks[op.at] in stacks[: op.at]


def _count(session: Session, rank: int, frame: RecordedFrame) -> int:
    known = [bool(stack) and stack[0] == frame for stack in session.stacks]
    return sum(known[index] for index in session.ranks[rank].ops.stack)
