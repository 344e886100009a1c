"""Counts of findings by kind: current, and all so far. Pure.

Consequences are not counted, nor are notes about what is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from distdbg.errors import format_ranks
from distdbg.export.metrics.samples import Blamed

_NOTE: Final = "note"
#: Notes of these kinds are of what ranks wait in now.
_WAITS: Final = ("stall", "missing rank")
#: What is remembered, so that a finding is not counted again with each verdict.
_MOST_KNOWN: Final = 4096


class FindingCounts:
    """Follows the verdicts of a job, start after start."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.blamed: tuple[Blamed, ...] = ()
        """By the verdict that holds now: who causes what is wrong."""
        self._known: dict[tuple[object, ...], None] = {}

    def take(self, attempt: int, verdict: Mapping[str, Any] | None) -> None:
        """A verdict as `verdict.json` has it; None: nothing is wrong."""
        now: Counter[str] = Counter()
        findings = verdict.get("findings") if verdict else None
        for finding in findings if isinstance(findings, list) else ():
            kind = str(finding.get("kind", ""))
            if finding.get("severity") == _NOTE and kind not in _WAITS:
                continue
            now[kind] += 1
            key = (
                attempt,
                kind,
                tuple(finding.get("ranks") or ()),
                finding.get("group"),
                finding.get("seq"),
            )
            if key not in self._known:
                self.total[kind] += 1
                self._known[key] = None
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self.now = now
        self.blamed = _blamed(verdict)


def _blamed(verdict: Mapping[str, Any] | None) -> tuple[Blamed, ...]:
    try:
        root = verdict["findings"][verdict["verdict"]["root"]] if verdict else None
        if not root:
            return ()
        waiting = format_ranks(sorted({int(rank) for rank in root.get("victims", ())}))
        return tuple(
            Blamed(int(rank), str(root["kind"]), _site_of(root, rank), waiting)
            for rank in root["ranks"]
        )
    except (AttributeError, KeyError, TypeError, IndexError, ValueError):
        return ()  # there is none, or no rank is the cause


def _site_of(root: Mapping[str, Any], rank: object) -> str:
    """Where that rank is by the evidence: 'train.py:88 (step)'; '' where it is not known."""
    for fact in root.get("evidence", ()):
        if fact.get("site") and (fact.get("rank") == rank or rank in fact.get("ranks", ())):
            return str(fact["site"])
    return ""
