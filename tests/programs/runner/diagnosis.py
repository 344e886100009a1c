"""What the diagnosis says of a program that has ended, from the records alone, against its truth.

Strict: the kind of the root cause, the ranks to blame, the line of each of them; and of a right
program nothing but notes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from distdbg.diagnose.finding import Evidence, Finding, Severity, Verdict
from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.verdict import diagnose
from runner.truth import Truth

_LINE = re.compile(r":(\d+) \(")


def diagnose_run(folder: Path) -> dict[str, Any]:
    """The verdict on the records in a folder, as plain values."""
    verdict = diagnose(load_run(folder))
    return {
        "what": verdict.what,
        "root": _plain(verdict.root) if verdict.root else None,
        "faults": [_plain(f) for f in verdict.findings if f.severity is not Severity.NOTE],
        "roles": {rank: str(role) for rank, role in verdict.roles.items()},
        "text": _show(verdict),
    }


def score_diagnosis(truth: Truth, diagnosis: dict[str, Any]) -> list[str]:
    """One line for everything that the diagnosis does not say as the program does."""
    if truth.is_right:
        return [f"found in a right program: {fault['what']}" for fault in diagnosis["faults"]]
    expected, root = truth.verdict, diagnosis["root"]
    if root is None:
        return [f"no root cause, {expected.kind} expected: {diagnosis['what']}"]
    complaints = []
    if root["kind"] != expected.kind:
        complaints.append(f"the root cause is {root['kind']!r}, not {expected.kind!r}")
    if sorted(root["ranks"]) != sorted(expected.ranks):
        complaints.append(f"ranks {root['ranks']} are blamed, not {list(expected.ranks)}")
    for rank in expected.lines_of:
        line = truth.sites.get(rank)
        if line is not None and line not in root["lines"].get(rank, ()):
            lines = root["lines"].get(rank, [])
            complaints.append(f"the evidence of rank {rank} is at lines {lines}, not {line}")
    shown = {line for lines in root["lines"].values() for line in lines}
    complaints += [
        f"the evidence does not name line {line}" for line in truth.also_lines if line not in shown
    ]
    wrong = [rank for rank in expected.ranks if diagnosis["roles"].get(rank) != "root"]
    if wrong:
        complaints.append(f"ranks {wrong} have no part of the root cause: {diagnosis['roles']}")
    if complaints:
        complaints += [f"    {line}" for line in diagnosis["text"]]
    return complaints


def _plain(finding: Finding) -> dict[str, Any]:
    lines: dict[int, list[int]] = {}
    for fact in (*finding.evidence, *finding.edges):
        found = _LINE.search(fact.site)
        of = fact.ranks if isinstance(fact, Evidence) else ()
        for rank in of or (fact.rank,):
            if rank is not None and found:
                lines.setdefault(rank, []).append(int(found[1]))
    return {
        "kind": str(finding.kind),
        "ranks": list(finding.ranks),
        "what": finding.what,
        "lines": lines,
    }


def _show(verdict: Verdict) -> list[str]:
    lines = [verdict.what]
    for finding in verdict.findings:
        lines.append(f"{finding.severity} {finding.kind} {list(finding.ranks)}: {finding.what}")
        lines += [f"  {fact.text} {fact.site}" for fact in finding.evidence]
    return [*lines, *verdict.lacks]
