"""The marks of a replay to jump to: errors, deaths, the verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnose.failures import failures_of
from distdbg.diagnose.finding import Finding, Severity, Verdict
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.tui.replayed import ReplayMark


def stops_of(session: Session, most: int = 1000) -> tuple[ReplayMark, ...]:
    """Errors of ops and ends of ranks, in order; of very many the first."""
    found = [
        ReplayMark(error.at_ns / 1e9, f"rank {rank}: {error.type}")
        for rank, errors in failures_of(session).items()
        for error in errors
        if error.at_ns != NEVER
    ]
    for rank, log in session.ranks.items():
        if log.end is not None and log.end.is_failure:
            at = session.time_ns(rank, log.end.ended_ns)
            found.append(ReplayMark(at / 1e9, f"rank {rank} {log.end.how}"))
    return tuple(sorted(found)[:most])


def stops_in(verdict: Verdict) -> tuple[ReplayMark, ...]:
    """The findings that have a time."""
    return tuple(sorted(_all(verdict.findings)))


def _all(findings: Iterable[Finding]) -> Iterable[ReplayMark]:
    for finding in findings:
        if finding.at_ns not in (None, NEVER):
            assert finding.at_ns is not None
            is_fault = finding.severity is Severity.ERROR
            yield ReplayMark(finding.at_ns / 1e9, finding.what, is_fault)
