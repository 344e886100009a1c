"""The deadlock that an agent proved while the job ran, from verdict.json in the run's folder.

The records of a finished job do not always hold the proof: a wait for an op begun earlier is not recorded
once it has ended. Everything else in verdict.json is found anew from the records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.verdict_document import read_verdict
from distdbg.record.folders import VERDICT_NAME

_MAX_NBYTES: Final = 1 << 26
_MAX_EACH: Final = 1 << 10


def read_proofs(folders: Iterable[Path]) -> list[Finding]:
    """The deadlocks of these folders; what cannot be read is left out."""
    found: dict[tuple[int, ...], Finding] = {}
    for folder in folders:
        for finding in _deadlocks(load_verdict(folder)):
            found.setdefault(finding.ranks, finding)
    return list(found.values())


def load_verdict(folder: Path) -> Verdict | None:
    """What an agent has left in the folder of one start; None where there is none, or it cannot be read."""
    try:
        with open(folder / VERDICT_NAME, "rb") as file:
            text = file.read(_MAX_NBYTES + 1)
        return read_verdict(json.loads(text)) if len(text) <= _MAX_NBYTES else None
    except (OSError, ValueError, RecursionError):
        return None


def _deadlocks(verdict: Verdict | None) -> list[Finding]:
    return [
        replace(
            one,
            severity=Severity.ERROR,
            evidence=tuple(
                replace(fact, source=VERDICT_NAME) for fact in one.evidence[:_MAX_EACH] if fact.text
            ),
            edges=one.edges[:_MAX_EACH],
            follows=(),
        )
        for one in (verdict.findings if verdict is not None else ())
        if one.kind is FindingKind.DEADLOCK and one.what and one.ranks
    ]
