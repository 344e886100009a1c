"""Finds which call of each rank an error is about that speaks of all ranks. Pure.

Collectives have the number of their group. A mismatch of ops that are counted by themselves (new_group) may
be noticed in a later one: each rank's call of the number that was told is meant.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from distdbg.diagnose.failures import Failure
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag


def calls_of_errors(
    session: Session, matched: Matched, errors: Sequence[Failure]
) -> dict[int, OpRef]:
    """By rank, of the errors of one mismatch; the first of them happened first."""
    found = {error.rank: error.op for error in reversed(errors) if error.op is not None}
    # Of ops that are counted by themselves a rank may hear in its next one of this one.
    first = min(errors, key=lambda error: error.seq or sys.maxsize)
    return found | _calls(session, matched, errors[0]) | _calls_aside(session, first)


def _calls(session: Session, matched: Matched, error: Failure) -> dict[int, OpRef]:
    """The op of each rank that an error is about."""
    for index, group in enumerate(session.groups):
        if error.seq and group.label == error.group:
            calls = matched.of(index).at(error.seq)
            if error.op is None or calls.get(error.rank) == error.op:
                return calls
    return {}


def _calls_aside(session: Session, error: Failure) -> dict[int, OpRef]:
    """Of an op that is counted by itself, as new_group: which of them each rank made under that number."""
    if error.op is None or not error.seq:
        return {}
    mine, kind = session.ranks[error.rank].ops, session.kind_of(error.op)
    if not mine.flags[error.op.at] & Flag.ASIDE:
        return {}
    found = {}
    for rank, log in session.ranks.items():
        ops = log.ops
        for at in range(len(ops)):
            is_like = (
                ops.flags[at] & Flag.ASIDE
                and ops.seq[at] == error.seq
                and ops.group[at] == mine.group[error.op.at]
            )
            op = OpRef(rank, at)
            if is_like and session.kind_of(op) == kind and rank not in found:
                found[rank] = op
    return found
