"""The findings of a verdict: in which order, where each is, how it is worded. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from distdbg.diagnose.finding import Edge, Evidence, Finding, Role, Severity, Verdict
from distdbg.render.words import evidence_text, ranks_text
from distdbg.tui.cells import Cell, Tone, one_line
from distdbg.tui.sheet import SheetLine
from distdbg.tui.targets import FindingTarget

_SEVERITIES: Final = tuple(Severity)
TONES: Final = {
    Severity.ERROR: Tone.FAULT, Severity.WARNING: Tone.WARN, Severity.NOTE: Tone.MUTED
}  # fmt: skip
_MAX_DEPTH: Final = 4


def role_ranks(verdict: Verdict | None, role: Role) -> tuple[int, ...]:
    roles = verdict.roles if verdict is not None else {}
    return tuple(rank for rank, one in sorted(roles.items()) if one is role)


def root_of(verdict: Verdict | None) -> Finding | None:
    """The root cause; None where there is none."""
    return verdict.root if verdict is not None else None


def findings_of(verdict: Verdict | None) -> tuple[Finding, ...]:
    """All of them, the root cause too."""
    return verdict.findings if verdict is not None else ()


def ordered(verdict: Verdict | None) -> list[tuple[int, Finding]]:
    """The findings with their places: the root cause, then by severity, then as they were found."""
    root = root_of(verdict)
    return sorted(
        enumerate(findings_of(verdict)),
        key=lambda one: (one[1] is not root, _SEVERITIES.index(one[1].severity)),
    )


def target_of(finding: Finding, path: tuple[int, ...]) -> FindingTarget:
    return FindingTarget(path, finding.kind, finding.group, finding.seq, finding.ranks)


def finding_at(verdict: Verdict | None, path: tuple[int, ...]) -> Finding | None:
    found: Sequence[Finding] = findings_of(verdict)
    one: Finding | None = None
    for at in path:
        if not 0 <= at < len(found):
            return None
        one = found[at]
        found = one.follows
    return one


def found_again(verdict: Verdict | None, target: FindingTarget) -> tuple[int, ...] | None:
    """Where that finding is in a later verdict: where it was, or where one like it is."""
    there = finding_at(verdict, target.path)
    if there is not None and target_of(there, target.path) == target:
        return target.path
    like = (target.kind, target.group, target.ranks)
    for path, one in _all(findings_of(verdict), ()):
        if (one.kind, one.group, one.ranks) == like:
            return path
    return None


def _all(
    findings: Sequence[Finding], path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Finding]]:
    for at, one in enumerate(findings):
        yield (*path, at), one
        if len(path) < _MAX_DEPTH:
            yield from _all(one.follows, (*path, at))


def finding_line(finding: Finding, target: FindingTarget, *, is_head: bool = False) -> SheetLine:
    """'error    deadlock of ranks 0,1: ...'."""
    severity = finding.severity
    return SheetLine(
        (Cell(f"{severity:<9}", TONES[severity]), Cell(one_line(finding.what), Tone.TITLE)),
        None if is_head else target,
        hang=9,
        is_fault=severity is not Severity.NOTE,
        block=None if is_head else target.path,
    )


def evidence_words(fact: Evidence) -> str:
    """Its text, and the places that it does not name itself."""
    return one_line(evidence_text(fact))


def edge_words(edge: Edge) -> str:
    """'rank 0 waits in recv from rank 1 at a.py:3 (run) for rank 1'."""
    text = f"rank {edge.rank} waits in {edge.text or 'an op'}"
    text += f" at {edge.site}" if edge.site else ""
    if edge.on and not (len(edge.on) == 1 and f"{ranks_text(edge.on)} " in f"{edge.text} "):
        is_any = edge.is_any and len(edge.on) > 1
        text += f" for {'any of ' if is_any else ''}{ranks_text(edge.on)}"
    return one_line(text)
