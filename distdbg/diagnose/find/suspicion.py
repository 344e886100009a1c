"""Suspicions of the check: ops that may have been swapped, layouts that differ.

Each rank of the group records the same text; they are one finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.find.phrases import as_evidence, few
from distdbg.diagnose.finding import Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RecordedProblem, Session

_TYPE: Final = "Suspicion"
_MAX_FINDINGS: Final = 16


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """Every suspicion once, with how many ranks have it."""
    reported: dict[tuple[str, str, int], list[tuple[int, RecordedProblem]]] = defaultdict(list)
    for rank, log in session.ranks.items():
        for found in log.found:
            if found.type == _TYPE:
                reported[found.what, found.group, found.seq].append((rank, found))
    findings = sorted(
        (_say(session, mine) for mine in reported.values()), key=lambda finding: finding.at_ns or 0
    )
    return findings[:_MAX_FINDINGS]


def _say(session: Session, reported: Sequence[tuple[int, RecordedProblem]]) -> Finding:
    rank, found = min(reported, key=lambda each: session.time_ns(each[0], each[1].at_ns))
    at_ns = session.time_ns(rank, found.at_ns)
    members = next((group.ranks for group in session.groups if group.label == found.group), ())
    return Finding(
        kind=FindingKind.SUSPICION,
        severity=Severity.WARNING,
        what=found.what,
        ranks=found.ranks if set(found.ranks) != set(members) else (),
        group=found.group,
        seq=found.seq,
        at_ns=None if at_ns == NEVER else at_ns,
        evidence=few([as_evidence(line) for line in found.details]),
        advice=found.hint
        or "compare the lines that the ranks called it from; the results may be wrong",
        numbers={"ranks": float(len(reported))},
    )
