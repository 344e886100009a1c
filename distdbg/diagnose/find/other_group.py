"""Tells whether a call that differs was meant for another group, on which others wait for just that call."""

from __future__ import annotations

from collections.abc import Mapping

from distdbg.diagnose.find.phrases import called
from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import fit, say_op, site_of
from distdbg.record.format import NO_COLLECTIVE, Status

ADVICE = Advice(
    "see how that line chooses the group: all ranks of a group must call the same ops on it",
    Trait.GROUP_CHOICE,
)


def calls_meant_elsewhere(
    session: Session, matched: Matched, calls: Mapping[int, OpRef]
) -> dict[int, Evidence]:
    """Find ranks whose next call on another group, where others wait for it, is the one that they made here.

    Empty where that is so of all of them: then it says nothing about which call is wrong.
    """
    found = {}
    for rank, call in calls.items():
        waiting = _who_waits(session, matched, call)
        if waiting is not None:
            text = f"rank {waiting.rank} waited for the same call of rank {rank} in "
            found[rank] = called(session, waiting, text + say_op(session, waiting))
    return found if len(found) < len(calls) else {}


def say_elsewhere(
    session: Session, calls: Mapping[int, OpRef], meant: Mapping[int, Evidence]
) -> str:
    """'rank 2 called all_reduce on group 'dp' at a.py:9 (f); rank 3 waited for it on group 'tp''."""
    if len(meant) != 1:
        return ""
    [(rank, waited)] = meant.items()
    if waited.op is None:
        return ""
    mine, other = (
        session.groups[session.ranks[op.rank].ops.group[op.at]].label
        for op in (calls[rank], waited.op)
    )
    if mine == other:
        return ""
    return fit(
        f"rank {rank} called {session.kind_of(calls[rank])} on group '{mine}' at "
        f"{site_of(session, calls[rank])}; rank {waited.op.rank} waited for it on group '{other}'"
    )


def _who_waits(session: Session, matched: Matched, call: OpRef) -> OpRef | None:
    log = session.ranks[call.rank]
    group = log.ops.group[call.at]
    if log.lost.get("ops"):
        return None  # how far it was on other groups is not known for certain
    for other, ops in matched:
        if other == group or call.rank not in session.members(other):
            continue
        others = ops.at(_next_seq(session, call, other))
        if call.rank in others and others[call.rank].at < call.at:
            continue
        for waiting in others.values():
            if waiting.rank != call.rank and _is_alike(session, waiting, call):
                return waiting
    return None


def _next_seq(session: Session, call: OpRef, group: int) -> int:
    """Return the number that the rank's next call on another group had when it made this one."""
    ops = session.ranks[call.rank].ops
    for at in range(call.at - 1, -1, -1):
        if ops.group[at] == group and not ops.flags[at] & NO_COLLECTIVE:
            return ops.seq[at] + 1
    return 1


def _is_alike(session: Session, waiting: OpRef, call: OpRef) -> bool:
    """Whether the one is the same call as the other, and has found no partner."""
    mine, theirs = session.ranks[call.rank].ops, session.ranks[waiting.rank].ops
    return (
        theirs.status[waiting.at] != Status.OK
        and session.kind_of(waiting) == session.kind_of(call)
        and session.forms[theirs.form[waiting.at]] == session.forms[mine.form[call.at]]
    )
