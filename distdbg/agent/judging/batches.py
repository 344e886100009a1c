"""Adds to a verdict that a rank ran out of batches, where the records of this host's ranks prove it.

A verdict of a running job is made of what is in flight; the marks of loops are in the records alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.record.batches import HINT, UNKNOWN
from distdbg.record.ran_out import describe, look
from distdbg.render.short import short_lines
from distdbg.render.verdict_json import to_plain

if TYPE_CHECKING:
    from distdbg.agent.judging.judged_verdict import JudgedVerdict

_KINDS: Final = frozenset((FindingKind.DEADLOCK, FindingKind.MISSING_RANK, FindingKind.MISMATCH))
#: Groups that are looked at: one of the finding, or those that its ranks share.
_MOST_GROUPS: Final = 4


def tell_out_of_batches(judged: JudgedVerdict, folder: Path) -> JudgedVerdict:
    """The same, with one line more behind the first; who is the cause stays as it was proven."""
    root = judged.verdict.root
    if root is None or root.kind not in _KINDS or root.severity is not Severity.ERROR:
        return judged
    ranks = sorted({*root.ranks, *root.victims})
    for group in _groups(judged, root, ranks):
        found = look(folder, group, ranks)
        if found is not None:
            return _with(judged, root, describe(found))
    return judged


def _with(judged: JudgedVerdict, root: Finding, words: str) -> JudgedVerdict:
    told = replace(
        root,
        evidence=(Evidence(text=words), *(one for one in root.evidence if UNKNOWN not in one.text)),
        advice=HINT,
    )
    findings = tuple(told if one is root else one for one in judged.verdict.findings)
    verdict = replace(judged.verdict, root=told, findings=findings)
    lines = short_lines(judged.session, verdict)
    if f"  {words}" not in lines:  # those of a deadlock are its edges
        lines.insert(1, f"  {words}")
    return replace(judged, verdict=verdict, lines=lines, plain=to_plain(judged.session, verdict))


def _groups(judged: JudgedVerdict, root: Finding, ranks: list[int]) -> list[str]:
    session = judged.session
    shared = [
        group
        for at, group in enumerate(session.groups)
        if sum(rank in session.ranks and at in session.ranks[rank].progress for rank in ranks) > 1
    ]
    shared.sort(key=lambda group: group.label != root.group)
    return [group.name for group in shared[:_MOST_GROUPS]]
