"""Counts of findings by kind: current, and all so far. Pure.

Consequences are not counted, nor are notes about what is over.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.errors import format_ranks
from distdbg.export.metrics.samples import CausingRank

#: Notes of these kinds are of what ranks wait in now.
_WAITS: Final = (FindingKind.STALL, FindingKind.MISSING_RANK)
#: What is remembered, so that a finding is not counted again with each verdict.
_MAX_KNOWN: Final = 4096


class FindingCounts:
    """Follows the verdicts of a job, start after start."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.causes: tuple[CausingRank, ...] = ()
        """The ranks that cause what is wrong, by the verdict that holds now."""
        self._known: dict[tuple[object, ...], None] = {}

    def take(self, attempt: int, verdict: Verdict | None) -> None:
        """The verdict that holds now; None: nothing is wrong."""
        now: Counter[str] = Counter()
        for finding in verdict.findings if verdict is not None else ():
            if finding.severity is Severity.NOTE and finding.kind not in _WAITS:
                continue
            kind = str(finding.kind)
            now[kind] += 1
            key = (attempt, kind, finding.ranks, finding.group, finding.seq)
            if key not in self._known:
                self.total[kind] += 1
                self._known[key] = None
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self.now = now
        self.causes = _causes(verdict.root) if verdict is not None and verdict.root else ()


def _causes(root: Finding) -> tuple[CausingRank, ...]:
    waiting = format_ranks(sorted(set(root.victims)))
    return tuple(
        CausingRank(rank, str(root.kind), _site_of(root, rank), waiting) for rank in root.ranks
    )


def _site_of(root: Finding, rank: int) -> str:
    """Where that rank is by the evidence: 'train.py:88 (step)'; '' where it is not known."""
    for fact in root.evidence:
        if fact.site and (fact.rank == rank or rank in fact.ranks):
            return fact.site
    return ""
