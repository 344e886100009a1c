"""Diverged replicas: values that should be equal on all ranks are not, by `assert_same` or a check.

The error is raised on all ranks of the group with the same words; here it is one finding. The cause
are the ranks outside the largest side; without a largest side it is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.failures import Failures, are_over, failures_of
from distdbg.diagnose.find.phrases import as_evidence, called, few
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER, OpRef
from distdbg.diagnose.session import RecordedProblem, Session
from distdbg.record.format import Status

_ERROR: Final = "DivergedError"


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """What ranks found to differ between them."""
    reported: dict[tuple[str, str, int], list[tuple[int, RecordedProblem]]] = defaultdict(list)
    for rank, log in session.ranks.items():
        for found in log.found:
            if found.type == _ERROR:
                reported[found.what, found.group, found.seq].append((rank, found))
    ops = _ops_that_diverged(session)
    if not reported and not ops:
        return []
    failures = failures_of(session)
    findings = []
    for (what, group, seq), reported_by in reported.items():
        refs = ops.pop((group, seq), [])
        findings.append(_say(session, reported_by, refs, _severity(failures, what, refs)))
    # The words may be lost where the op is not.
    findings += [_say_op(session, refs, _severity(failures, "", refs)) for refs in ops.values()]
    return sorted(findings, key=lambda finding: finding.at_ns or 0)


def _severity(failures: Failures, what: str, refs: Sequence[OpRef]) -> Severity:
    """A warning where all ranks have caught it and went on."""
    return Severity.WARNING if are_over(failures, _ERROR, what, refs) else Severity.ERROR


def _ops_that_diverged(session: Session) -> dict[tuple[str, int], list[OpRef]]:
    found: dict[tuple[str, int], list[OpRef]] = defaultdict(list)
    for rank, log in session.ranks.items():
        if Status.DIVERGED not in log.ops.status:
            continue
        for at, status in enumerate(log.ops.status):
            if status == Status.DIVERGED:
                group = session.group_of(OpRef(rank, at))
                key = group.label if group else "", log.ops.seq[at]
                found[key].append(OpRef(rank, at))
    return found


def _say(
    session: Session,
    reported: Sequence[tuple[int, RecordedProblem]],
    ops: Sequence[OpRef],
    severity: Severity,
) -> Finding:
    rank, found = min(reported, key=lambda each: session.time_ns(each[0], each[1].at_ns))
    reporters = tuple(sorted(each for each, _ in reported))
    everybody = _members(session, found.group) or reporters
    is_odd = set(found.ranks) < set(everybody)
    at_ns = session.time_ns(rank, found.at_ns)
    evidence = [as_evidence(line) for line in found.details]
    return Finding(
        kind=FindingKind.DIVERGED,
        severity=severity,
        what=found.what,
        ranks=found.ranks if is_odd else (),
        victims=tuple(r for r in everybody if r not in found.ranks) if is_odd else everybody,
        group=found.group,
        seq=found.seq,
        at_ns=None if at_ns == NEVER else at_ns,
        evidence=few([*evidence, *(called(session, op) for op in ops)]),
        advice=found.hint or _ADVICE,
    )


_ADVICE: Final = (
    "see where the first difference can come from: loading, initial values, random seeds"
)


def _say_op(session: Session, refs: Sequence[OpRef], severity: Severity) -> Finding:
    first = refs[0]
    ops = session.ranks[first.rank].ops
    group = session.group_of(first)
    return Finding(
        kind=FindingKind.DIVERGED,
        severity=severity,
        what=f"{session.name_of(first)} left different results on its ranks",
        victims=tuple(sorted(op.rank for op in refs)),
        group=group.label if group else "",
        seq=ops.seq[first.at],
        at_ns=session.time_ns(first.rank, ops.issued_ns[first.at]),
        evidence=few([called(session, op) for op in refs]),
        advice="dist.assert_same(array) names the first element that differs",
    )


def _members(session: Session, label: str) -> tuple[int, ...]:
    return next((group.ranks for group in session.groups if group.label == label), ())
