"""An agent's verdict when the job is over: what the records show of it, who failed because of it. Pure."""

from __future__ import annotations

from distdbg.control.words import AbortWords
from distdbg.launch.diagnosis import DEAD_RANK, MISSING_RANK, Diagnosis
from distdbg.launch.evidence import LostRankEvidence


def better_than(verdict: AbortWords | None, diagnosis: Diagnosis | None) -> Diagnosis | None:
    """What the records show of that verdict: an agent has proven it before anybody could read them all."""
    if verdict is None or diagnosis is None:
        return None
    return diagnosis if diagnosis.kind == verdict.type or has_died(verdict, diagnosis) else None


def has_died(verdict: AbortWords | None, diagnosis: Diagnosis | None) -> bool:
    """Whether the ranks that did not come have ended with an error, which the agent could not know."""
    if verdict is None or diagnosis is None:
        return False
    is_same = tuple(verdict.ranks) == diagnosis.ranks
    return is_same and (verdict.type, diagnosis.kind) == (MISSING_RANK, DEAD_RANK)


def has_failed(one: LostRankEvidence) -> bool:
    """Whether a rank failed by itself, or with the error of the abort, whatever ended its process then."""
    if one.end.was_asked:
        return one.error is not None and bool(one.error.aborted_by)
    return one.end.is_failure


def was_aborted(one: LostRankEvidence, verdict: AbortWords) -> bool:
    """Whether it failed, and the job was not aborted because of that."""
    has_error = one.error is not None and bool(one.error.aborted_by)
    is_cause = one.rank in verdict.ranks and not one.because_of and not has_error
    return has_failed(one) and not is_cause
