"""What the diagnosis says of a start of a job, within bounded memory.

Judging holds all ops at once. So where there are more than `MAX_OPS`, what the agent has written into the
run's folder is taken instead (verdict.json, as long as something is wrong), and `lacks` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.load.proof import load_verdict
from distdbg.diagnose.verdict import diagnose
from distdbg.export.reading import RunStart

#: About 150 MiB.
MAX_OPS: Final = 250_000


def find_findings(start: RunStart) -> list[Finding]:
    """Root cause first; those that follow from another come behind it."""
    if start.count_at_most() <= MAX_OPS:
        session = start.load()
        return [] if session is None else list(_flat(diagnose(session).findings))
    reported = [finding for folder in start.folders for finding in _kept_findings(folder)]
    start.session.lacks.append(
        f"more than {MAX_OPS:,} ops: findings are those of the agent, {len(reported):,}; "
        "distdbg analyze judges all of it"
    )
    return reported


def _flat(findings: Sequence[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        yield from _flat(finding.follows)


def _kept_findings(folder: Path) -> list[Finding]:
    """Those of a verdict.json, without their evidence; [] where there is none."""
    verdict = load_verdict(folder)
    return [
        replace(one, evidence=(), edges=(), follows=())
        for one in _flat(verdict.findings if verdict is not None else ())
        if one.kind is not FindingKind.UNKNOWN
    ]
